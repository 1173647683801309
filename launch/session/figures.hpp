// Figures: what one answer cost, for the line at the end of a run and for --stats.
//
// Prompt tokens/s: tokens that had to be processed before the first could be drawn, over the
// time that took. Tokens/s: tokens after the first, over the time from the first to the last.
// Time to first token: from handing the prompt over (the model is loaded) to the first token.
// Peak memory: VmHWM of this process and, where a pipeline runs, of its stages together.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/result.hpp"
#include "model/backend.hpp"

namespace paceline {

enum class AnswerEnd : std::uint8_t { EndToken, MaxTokens, ContextFull, StopString, Interrupted };

[[nodiscard]] const char* name(AnswerEnd end);

struct Figures {
    std::string model;   // path
    std::string method;  // "plain", or the pipeline's name
    std::string dtype;   // as asked for
    std::string kv_dtype;
    std::string equality_class;
    bool exact = true;  // false: cuBLAS may multiply (--exact off); equality_class says so too
    int threads = 0;
    std::uint64_t seed = 0;
    double load_seconds = 0.0;          // opening, checking and packing
    std::int32_t prompt_tokens = 0;     // of the whole prompt or turn
    std::int32_t processed_tokens = 0;  // of these, not yet in the KV cache
    double prefill_seconds = 0.0;
    double first_token_seconds = 0.0;
    std::int32_t generated_tokens = 0;
    double decode_seconds = 0.0;
    std::int64_t waves = 0;            // of a pipeline: verified waves,
    std::int64_t proposed_tokens = 0;  // tokens that a draft proposed,
    std::int64_t accepted_tokens = 0;  // and how many of them stood
    std::uint32_t replays = 0;         // times that a lost stage made it begin anew
    MemoryUse memory;
    std::uint64_t peak_bytes = 0;
    AnswerEnd end = AnswerEnd::EndToken;

    [[nodiscard]] double prompt_rate() const;  // tokens/s; 0 where there is nothing to divide
    [[nodiscard]] double decode_rate() const;
};

/// "prompt 32 tokens, 506.1 tokens/s | answer 128 tokens, ... | peak memory 143 MB"
[[nodiscard]] std::string one_line(const Figures& figures);
[[nodiscard]] nlohmann::json to_json(const Figures& figures);

/// The most memory this process ever had in RAM, in bytes; 0 where /proc does not say.
[[nodiscard]] std::uint64_t peak_memory_bytes();

}  // namespace paceline
