#include "launch/session/answer.hpp"

#include <algorithm>
#include <chrono>

#include "model/sampling/stop_rules.hpp"

namespace paceline {

namespace {

double seconds(std::chrono::microseconds time) {
    return std::chrono::duration<double>(time).count();
}

AnswerEnd end_of(msg::Finish finish, const StopMatcher& matcher, const AnswerRequest& request) {
    if (matcher.reason() == StopReason::StopString) return AnswerEnd::StopString;
    switch (finish) {
        case msg::Finish::EndToken:
            return AnswerEnd::EndToken;
        case msg::Finish::MaxTokens:
            return AnswerEnd::MaxTokens;
        case msg::Finish::ContextFull:
            return AnswerEnd::ContextFull;
        case msg::Finish::No:
        case msg::Finish::Failed:  // an error by now
            break;
    }
    return request.max_tokens == 0 ? AnswerEnd::MaxTokens : AnswerEnd::Interrupted;
}

}  // namespace

Result<Answer> stream_answer(Generator& generator,
                             const Tokenizer& tokenizer,
                             const AnswerRequest& request,
                             const CancelToken& cancel,
                             const TextSink& sink) {
    StopRules rules;
    rules.stop_strings = request.stop_strings;
    if (Status s = validate(rules); !s.ok()) return s.error();
    StopMatcher matcher{rules};
    Detokenizer detokenizer{tokenizer};
    Answer answer;

    PlainParams params;
    params.sampling = request.sampling;
    params.end_tokens = tokenizer.end_tokens();
    params.max_tokens = request.max_tokens == 0 ? 1 : request.max_tokens;
    Status shown;
    const auto on_token = [&](TokenId token) {
        if (request.max_tokens == 0) return Go::Stop;  // drawn, because the prompt was processed
        answer.ids.push_back(token);
        const StopMatcher::Step step = matcher.push(token, detokenizer.push(token));
        if (!step.text.empty()) shown = sink(step.text);
        return step.reason == StopReason::None && shown.ok() ? Go::On : Go::Stop;
    };
    Result<GeneratorFigures> figures = generator.run(request.tokens, params, on_token, cancel);
    if (!figures) return figures.error();

    // What was held back as the possible beginning of a stop string or of a character.
    const std::string rest = matcher.finish(detokenizer.finish());
    if (shown.ok() && !rest.empty()) shown = sink(rest);
    if (!shown.ok()) return shown.error();
    if (figures.value().decoding.finish == msg::Finish::Failed) {
        return Error{Errc::BadFile, "no token can be drawn after " +
                                        std::to_string(answer.ids.size()) +
                                        " of the answer: no logit is a finite number; the "
                                        "model's weights may be damaged"};
    }
    answer.figures = figures.value();
    if (request.max_tokens == 0) answer.figures.decoding.generated_tokens = 0;
    answer.end = end_of(answer.figures.decoding.finish, matcher, request);
    return answer;
}

Figures figures_of(const Answer& answer, const AnswerRequest& request, const Generator& generator) {
    const PlainFigures& decoding = answer.figures.decoding;
    const GeneratorTraits traits = generator.traits();
    Figures f;
    f.method = traits.method;
    f.equality_class = traits.equality_class;
    f.threads = traits.threads;
    f.memory = traits.memory;
    f.peak_bytes = peak_memory_bytes() + traits.peak_bytes;
    f.prompt_tokens = static_cast<std::int32_t>(request.tokens.size());
    f.processed_tokens = decoding.prompt_tokens;
    f.prefill_seconds = seconds(decoding.prefill);
    f.first_token_seconds = seconds(decoding.first_token);
    f.generated_tokens = decoding.generated_tokens;
    f.decode_seconds = seconds(decoding.decode);
    f.waves = answer.figures.waves;
    f.proposed_tokens = answer.figures.proposed_tokens;
    f.accepted_tokens = answer.figures.accepted_tokens;
    f.replays = answer.figures.replays;
    f.seed = request.sampling.seed;
    f.end = answer.end;
    return f;
}

}  // namespace paceline
