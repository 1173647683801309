#include "launch/session/run_stats.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "launch/base/print.hpp"

namespace paceline {

namespace {

double seconds(std::chrono::microseconds time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

double RunStats::prompt_rate() const {
    const double took = seconds(answer.prefill_time());
    return took > 0.0 ? answer.prompt_tokens / took : 0.0;
}

namespace {

/// Of a prompt that was processed, or of what was done of it when it was cancelled.
std::string prompt_text(const RunStats& f) {
    const AnswerStats& a = f.answer;
    const bool cut = a.generated_tokens == 0 && a.finish == FinishReason::Interrupted;
    std::string text = print("prompt %d", a.prompt_tokens);
    if (cut) text += print(" of %d", std::max(f.prompt_tokens, a.prompt_tokens));
    text += " tokens";
    if (f.prompt_rate() > 0.0) text += print(", %.1f tokens/s", f.prompt_rate());
    return text + (cut ? ", cancelled" : "");
}

std::string answer_text(const AnswerStats& a) {
    if (a.generated_tokens == 0) return {};
    const char* noun = a.generated_tokens == 1 ? "token" : "tokens";
    std::string text = print(" | answer %d %s", a.generated_tokens, noun);
    if (a.decode_rate() > 0.0) text += print(", %.1f tokens/s", a.decode_rate());
    return text + print(" | first token %.3f s", seconds(a.time_to_first()));
}

std::string batches_text(const AnswerStats& a) {
    const VerdictTally& v = a.verdicts;
    if (v.candidates == 0) return {};
    return print(" | %.2f tokens per batch, %lld of %lld proposals accepted",
                 static_cast<double>(a.generated_tokens) / static_cast<double>(v.batches),
                 static_cast<long long>(v.accepted), static_cast<long long>(v.candidates));
}

}  // namespace

std::string one_line(const RunStats& f, bool first) {
    std::string text = prompt_text(f) + answer_text(f.answer);
    if (first) text += print(" | load %.2f s", f.load_seconds);
    text += print(" | peak memory %.0f MB", static_cast<double>(f.traits.peak_bytes) / 1e6);
    return text + batches_text(f.answer) + (f.exact ? "" : " | exact off");
}

nlohmann::json to_json(const RunStats& f) {
    return {
        {"model", f.model},
        {"lora", f.lora},
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
        {"batches", f.answer.verdicts.batches},
        {"proposed_tokens", f.answer.verdicts.candidates},
        {"accepted_tokens", f.answer.verdicts.accepted},
        {"replays", f.answer.replays},
        {"preemptions", f.answer.preemptions},
        {"cached_tokens", f.answer.cached_tokens},
        {"matched_tokens", f.answer.matched_tokens},
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
