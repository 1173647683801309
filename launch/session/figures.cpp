#include "launch/session/figures.hpp"

#include <array>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

namespace paceline {

const char* name(AnswerEnd end) {
    switch (end) {
        case AnswerEnd::EndToken:
            return "end_token";
        case AnswerEnd::MaxTokens:
            return "max_tokens";
        case AnswerEnd::ContextFull:
            return "context_full";
        case AnswerEnd::StopString:
            return "stop_string";
        case AnswerEnd::Interrupted:
            return "interrupted";
    }
    return "unknown";
}

double Figures::prompt_rate() const {
    return prefill_seconds > 0.0 ? processed_tokens / prefill_seconds : 0.0;
}

double Figures::decode_rate() const {
    return generated_tokens > 1 && decode_seconds > 0.0 ? (generated_tokens - 1) / decode_seconds
                                                        : 0.0;
}

std::string one_line(const Figures& f) {
    std::array<char, 320> line{};
    int used = std::snprintf(
        line.data(), line.size(),
        "prompt %d tokens, %.1f tokens/s | answer %d tokens, %.1f tokens/s | first token %.3f s | "
        "load %.2f s | peak memory %.0f MB",
        f.prompt_tokens, f.prompt_rate(), f.generated_tokens, f.decode_rate(),
        f.first_token_seconds, f.load_seconds, static_cast<double>(f.peak_bytes) / 1e6);
    if (f.proposed_tokens > 0) {
        const auto room = line.size() - static_cast<std::size_t>(used);
        std::snprintf(
            line.data() + used, room, " | %.2f tokens per wave, %lld of %lld proposals accepted",
            f.waves > 0 ? static_cast<double>(f.generated_tokens) / static_cast<double>(f.waves)
                        : 0.0,
            static_cast<long long>(f.accepted_tokens), static_cast<long long>(f.proposed_tokens));
    }
    std::string text{line.data()};
    if (!f.exact) text += " | exact off";
    return text;
}

nlohmann::json to_json(const Figures& f) {
    return {
        {"model", f.model},
        {"method", f.method},
        {"dtype", f.dtype},
        {"kv_dtype", f.kv_dtype},
        {"equality_class", f.equality_class},
        {"threads", f.threads},
        {"seed", f.seed},
        {"load_seconds", f.load_seconds},
        {"prompt_tokens", f.prompt_tokens},
        {"processed_tokens", f.processed_tokens},
        {"prefill_seconds", f.prefill_seconds},
        {"prompt_tokens_per_second", f.prompt_rate()},
        {"first_token_seconds", f.first_token_seconds},
        {"generated_tokens", f.generated_tokens},
        {"decode_seconds", f.decode_seconds},
        {"tokens_per_second", f.decode_rate()},
        {"waves", f.waves},
        {"proposed_tokens", f.proposed_tokens},
        {"accepted_tokens", f.accepted_tokens},
        {"replays", f.replays},
        {"weight_bytes", f.memory.weight_bytes},
        {"kv_bytes", f.memory.kv_bytes},
        {"workspace_bytes", f.memory.workspace_bytes},
        {"pinned_bytes", f.memory.pinned_bytes},
        {"peak_memory_bytes", f.peak_bytes},
        {"end", name(f.end)},
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
