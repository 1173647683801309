// stream_answer(): one answer, from prompt tokens to text that appears as it is drawn.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/session/figures.hpp"
#include "launch/session/generator.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

struct AnswerRequest {
    std::vector<TokenId> tokens;  // the prompt, or the next turn of a conversation
    SamplingParams sampling;
    std::vector<std::string> stop_strings;
    std::int32_t max_tokens = -1;  // 0: process the prompt, generate nothing
};

struct Answer {
    std::vector<TokenId> ids;  // as generated; an end token is the last of them
    AnswerEnd end = AnswerEnd::EndToken;
    GeneratorFigures figures;
};

using TextSink = std::function<Status(std::string_view)>;

/// Gives whole characters to `sink`; the stop string that ends an answer is not among them.
/// Errors: those of Generator::run() and of `sink`, which ends the answer; bad stop strings;
/// BadFile if the model gives no number to draw a token from.
[[nodiscard]] Result<Answer> stream_answer(Generator& generator,
                                           const Tokenizer& tokenizer,
                                           const AnswerRequest& request,
                                           const CancelToken& cancel,
                                           const TextSink& sink);

/// The figures of `answer`; load time, model and sampling are the caller's to add.
[[nodiscard]] Figures figures_of(const Answer& answer,
                                 const AnswerRequest& request,
                                 const Generator& generator);

}  // namespace paceline
