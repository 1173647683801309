#include "launch/session/figures.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

namespace paceline {

namespace {

double seconds(std::chrono::microseconds time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

double Figures::prompt_rate() const {
    const double took = seconds(answer.prefill_time());
    return took > 0.0 ? answer.prompt_tokens / took : 0.0;
}

std::string one_line(const Figures& f) {
    const VerdictTally& verdicts = f.answer.verdicts;
    std::array<char, 320> line{};
    int used = std::snprintf(
        line.data(), line.size(),
        "prompt %d tokens, %.1f tokens/s | answer %d tokens, %.1f tokens/s | first token %.3f s | "
        "load %.2f s | peak memory %.0f MB",
        f.prompt_tokens, f.prompt_rate(), f.answer.generated_tokens, f.answer.decode_rate(),
        seconds(f.answer.time_to_first()), f.load_seconds,
        static_cast<double>(f.traits.peak_bytes) / 1e6);
    if (verdicts.candidates > 0) {
        const auto room = line.size() - static_cast<std::size_t>(used);
        std::snprintf(
            line.data() + used, room, " | %.2f tokens per wave, %lld of %lld proposals accepted",
            static_cast<double>(f.answer.generated_tokens) / static_cast<double>(verdicts.waves),
            static_cast<long long>(verdicts.accepted), static_cast<long long>(verdicts.candidates));
    }
    std::string text{line.data()};
    if (!f.exact) text += " | exact off";
    return text;
}

nlohmann::json to_json(const Figures& f) {
    return {
        {"model", f.model},
        {"method", f.traits.method},
        {"dtype", f.dtype},
        {"kv_dtype", f.kv_dtype},
        {"equality_class", f.traits.equality_class},
        {"threads", f.traits.threads},
        {"seed", f.seed},
        {"load_seconds", f.load_seconds},
        {"prompt_tokens", f.prompt_tokens},
        {"processed_tokens", f.answer.prompt_tokens},
        {"prefill_seconds", seconds(f.answer.prefill_time())},
        {"prompt_tokens_per_second", f.prompt_rate()},
        {"first_token_seconds", seconds(f.answer.time_to_first())},
        {"generated_tokens", f.answer.generated_tokens},
        {"decode_seconds", seconds(f.answer.decode_time())},
        {"tokens_per_second", f.answer.decode_rate()},
        {"waves", f.answer.verdicts.waves},
        {"proposed_tokens", f.answer.verdicts.candidates},
        {"accepted_tokens", f.answer.verdicts.accepted},
        {"replays", f.answer.replays},
        {"weight_bytes", f.traits.memory.weight_bytes},
        {"kv_bytes", f.traits.memory.kv_bytes},
        {"workspace_bytes", f.traits.memory.workspace_bytes},
        {"pinned_bytes", f.traits.memory.pinned_bytes},
        {"peak_memory_bytes", f.traits.peak_bytes},
        {"end", name_of(f.answer.finish)},
    };
}

std::uint64_t peak_memory_bytes() {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);) {
        unsigned long long kilobytes = 0;
        if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kilobytes) == 1) return kilobytes * 1024;
    }
    return 0;
}

}  // namespace paceline
