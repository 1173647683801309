#include "launch/session/stream_answer.hpp"

#include <fmt/core.h>

#include "launch/session/answer_text.hpp"
#include "model/sampling/stop_matcher.hpp"

namespace paceline {

Result<Answer> TokenGenerator::answer(const TextRequest& wanted,
                                      const Tokenizer& tokenizer,
                                      const CancelToken& cancel,
                                      const TextSink& sink) {
    const std::vector<TokenId>& before = wanted.request.text;
    AnswerText text{tokenizer, before.empty() ? std::nullopt : std::optional{before.back()},
                    wanted.stop_strings};
    Answer answer;
    Status shown;
    const auto on_token = [&](TokenId token) {
        if (wanted.prompt_only) return Go::Stop;  // drawn, because the prompt was processed
        answer.ids.push_back(token);
        const std::string more = text.push(token);
        if (!more.empty()) shown = sink(more);
        return text.stopped() || !shown.ok() ? Go::Stop : Go::On;
    };
    const Position prompt_end = text_tokens() + static_cast<Position>(before.size());
    on_scores([&](Position position, const TokenScores& scores) {
        if (position < prompt_end || !wanted.prompt_only)
            answer.add_scores(position < prompt_end, scores);
    });
    Result<AnswerStats> stats = run(wanted.request, on_token, cancel);
    on_scores({});
    if (!stats) return stats.error();
    // What was held back as the possible beginning of a stop string or of a character.
    const std::string rest = text.finish();
    if (shown.ok() && !rest.empty()) shown = sink(rest);
    if (!shown.ok()) return shown.error();
    answer.stats = stats.value();
    if (text.stopped()) answer.stats.finish = FinishReason::StopString;
    return answer;
}

Result<Answer> stream_answer(Generator& generator,
                             const Tokenizer& tokenizer,
                             const TextRequest& wanted,
                             const CancelToken& cancel,
                             const TextSink& sink) {
    if (Status s = validate_stop_strings(wanted.stop_strings); !s.ok()) return s.error();
    Result<Answer> made = generator.answer(wanted, tokenizer, cancel, sink);
    if (!made) return made.error();
    Answer& answer = made.value();
    FinishReason& finish = answer.stats.finish;
    if (finish == FinishReason::GrammarFailed)
        return Error{Errc::BadFile, fmt::format("the answer ends after {} tokens: {}",
                                                answer.ids.size(), kGrammarFailed)};
    if (finish == FinishReason::Failed && wanted.request.compiled != nullptr) {
        return Error{
            Errc::BadArgument,
            fmt::format(
                "no token can be drawn after {} of the answer: the grammar allows none that the "
                "vocabulary has, or no logit is a finite number",
                answer.ids.size())};
    }
    if (finish == FinishReason::Failed) {
        return Error{Errc::BadFile,
                     fmt::format("no token can be drawn after {} of the answer: no logit is a "
                                 "finite number; the model's weights may be damaged",
                                 answer.ids.size())};
    }
    if (!wanted.prompt_only) return made;
    // The token was drawn because the prompt was processed; without one the user cancelled.
    const bool processed = answer.stats.generated_tokens > 0;
    answer.stats.generated_tokens = 0;
    if (finish == FinishReason::Interrupted && processed) finish = FinishReason::MaxTokens;
    return made;
}

RunStats stats_of(const Answer& answer, const Request& request, const Generator& generator) {
    RunStats f;
    f.traits = generator.traits();
    f.traits.peak_bytes += peak_memory_bytes();
    f.seed = request.sampling.seed;
    f.prompt_tokens = static_cast<std::int32_t>(request.text.size());
    f.answer = answer.stats;
    return f;
}

}  // namespace paceline
