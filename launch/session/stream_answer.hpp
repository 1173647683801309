// stream_answer(): one answer, from prompt tokens to text that appears as it is drawn.
#pragma once

#include "actors/decoding/answer.hpp"
#include "ipc/base/result.hpp"
#include "launch/session/generator.hpp"
#include "launch/session/run_stats.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

/// Gives whole characters to `sink`; the stop string that ends an answer is not among them.
/// Errors: those of Generator::run() and of `sink`, which ends the answer; bad stop strings;
/// BadFile if the model gives no number to draw a token from.
[[nodiscard]] Result<Answer> stream_answer(Generator& generator,
                                           const Tokenizer& tokenizer,
                                           const TextRequest& wanted,
                                           const CancelToken& cancel,
                                           const TextSink& sink);

/// The statistics of `answer`; load time and model are the caller's to add.
[[nodiscard]] RunStats stats_of(const Answer& answer,
                                const Request& request,
                                const Generator& generator);

}  // namespace paceline
