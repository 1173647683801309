// RunStats: what one answer cost, for the line at the end of a run and for --stats: its
// AnswerStats, and what decoded it.
//
// Prompt tokens/s: tokens that had to be processed before the first could be drawn, over the
// time that took. Tokens/s: tokens after the first, over the time from the first to the last.
// Time to first token: from handing the prompt over (the model is loaded) to the first token.
// Peak memory: VmHWM of this process and, where a pipeline runs, of its stages together.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "actors/decoding/answer.hpp"
#include "model/backend.hpp"

namespace paceline {

/// What decodes; the same from answer to answer.
struct GeneratorTraits {
    std::string method;  // "plain", or the pipeline's name
    std::string equality_class;
    int threads = 0;               // of all stages together
    MemoryUse memory;              // of all stages together
    std::uint64_t peak_bytes = 0;  // of the stages' own processes so far; 0 without any
};

struct RunStats {
    std::string model;  // path
    std::string lora;   // path of the LoRA merged into it; empty: none
    std::string dtype;  // of most weights: what "auto" came to
    std::string kv_dtype;
    bool exact = true;  // false: cuBLAS may multiply (--exact off); equality_class says so too
    std::uint64_t seed = 0;
    double load_seconds = 0.0;       // opening, checking and packing
    std::int32_t prompt_tokens = 0;  // of the whole prompt or turn, also those in the KV cache
    GeneratorTraits traits;          // its peak_bytes with those of this process
    AnswerStats answer;

    [[nodiscard]] double prompt_rate() const;  // tokens/s; 0 where there is nothing to divide
};

/// "prompt 32 tokens, 506.1 tokens/s | answer 128 tokens, ... | peak memory 143 MB"; rates that
/// have nothing to divide are left out, and the load unless it is the first answer of the program.
/// The prompt's tokens are those that were processed: the rate's.
[[nodiscard]] std::string one_line(const RunStats& stats, bool first = true);
[[nodiscard]] nlohmann::json to_json(const RunStats& stats);

/// The most memory this process ever had in RAM, in bytes; 0 where /proc does not say.
[[nodiscard]] std::uint64_t peak_memory_bytes();

}  // namespace paceline
