// ExactAnswers: runs requests through a pipeline and compares each answer with plain decoding's.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tests/support/pipeline/pipeline.hpp"

namespace paceline::testing {

inline constexpr RequestId kOne{1};

inline std::vector<TokenId> answer_of(Pipeline& pipeline, RequestId request) {
    const auto answer = pipeline.conductor.log.answer(request);
    return {answer.begin(), answer.end()};
}

/// Only what is committed of a text of `tokens` holds a slot: all candidates that failed have given
/// theirs back.
inline void check_only_text_held(const Pipeline& pipeline, RequestId request, std::size_t tokens) {
    CHECK(pipeline.segment_actors.front()->scheduler()->slots_in_use(request) ==
          static_cast<std::int32_t>(tokens) - 1);
}

/// The next turn after `answer`: the keys so far are of use again, nine tokens are new.
inline BeginPayload next_turn(const Request& request, std::span<const TokenId> answer) {
    BeginPayload turn{request};
    turn.text.insert(turn.text.end(), answer.begin(), answer.end());
    turn.reuse = static_cast<std::int32_t>(turn.text.size()) - 1;
    for (TokenId token = 0; token < 9; ++token) turn.text.push_back(token);
    return turn;
}
/// The conductor closes its only request and opens it with another text: the attempt to begin.
inline Attempt reopen(Pipeline& pipeline, const Request& turn) {
    pipeline.conductor.log.close(kOne);
    CHECK(pipeline.conductor.log.open(kOne, turn.text));
    return pipeline.conductor.log.restart(kOne).value();
}
/// Runs another turn to its end, beside what is left of the one before.
inline void run_turn(Pipeline& pipeline, const BeginPayload& turn) {
    const Attempt attempt = reopen(pipeline, turn);
    const int finished = pipeline.conductor.finished;
    pipeline.begin(kOne, turn, attempt);
    pipeline.run_until_finished(finished + 1);
}

/// Runs requests at once and compares each with plain decoding; at the end nothing may be held.
/// Returns the verdicts.
inline int check_exact(const PipelineOptions& options, std::span<const Request> requests) {
    std::vector<Oracle> oracles;
    std::vector<std::vector<TokenId>> texts;
    for (const Request& request : requests) {
        oracles.push_back(plain_answer(request, options.all_nan_at));
        texts.push_back(whole_text(request, oracles.back()));
    }
    Pipeline pipeline{options, texts};
    for (std::size_t i = 0; i < requests.size(); ++i) {
        pipeline.open_and_begin(RequestId{i + 1}, requests[i]);
    }
    pipeline.run_until_finished(static_cast<int>(requests.size()));
    const int verdicts = pipeline.conductor.verdicts;
    pipeline.run_dry();
    Position last_useful = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        const RequestId id{i + 1};
        CHECK(answer_of(pipeline, id) == oracles[i].answer);
        check_only_text_held(pipeline, id, requests[i].text.size() + oracles[i].answer.size());
        pipeline.stop(id, Attempt{1});
        const auto length = static_cast<Position>(requests[i].text.size());
        const Position room = requests[i].finish_rule().room_at(length);
        last_useful = std::max(last_useful, length + room - 2);
    }
    pipeline.run_dry();
    CHECK(pipeline.world.tensors_all_free());
    // No row was computed after the last one whose token could be committed.
    CHECK(pipeline.backends.front()->highest_position <= last_useful);
    return verdicts;
}

inline int check_exact(const PipelineOptions& options, const Request& request) {
    const Oracle oracle = plain_answer(request, options.all_nan_at);
    Pipeline pipeline{options, request, oracle};
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    CHECK(pipeline.conductor.finish == oracle.finish);
    return check_exact(options, std::span{&request, 1});
}

}  // namespace paceline::testing
