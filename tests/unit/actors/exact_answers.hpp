// ExactAnswers: runs requests through a pipeline and compares each answer with plain decoding's.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "model/kv_layout.hpp"
#include "tests/support/pipeline/pipeline.hpp"

namespace paceline::testing {

inline std::vector<TokenId> answer_of(Pipeline& pipeline, RequestId request) {
    const auto answer = pipeline.conductor.log.answer(request);
    return {answer.begin(), answer.end()};
}

/// No request holds a page of the first segment's cache; a search's scratch rows do.
inline void check_no_page_held(const BatchScheduler& scheduler, const PipelineOptions& options) {
    const bool searches = options.self_draft && options.self_draft->choice != SkipChoice::Fixed;
    CHECK(scheduler.pages().in_use() ==
          (searches ? pages_for(options.self_draft->scratch_slots()) : 0));
}

/// The next turn after `answer`: nine tokens are new.
inline Request next_turn(const Request& request, std::span<const TokenId> answer) {
    Request turn{request};
    turn.text.insert(turn.text.end(), answer.begin(), answer.end());
    for (TokenId token = 0; token < 9; ++token) turn.text.push_back(token);
    return turn;
}
/// Runs another turn to its end, beside what is left of the one before.
inline void run_turn(Pipeline& pipeline, const Request& turn) {
    const int finished = pipeline.conductor.finished;
    pipeline.open_and_begin(RequestId{2}, turn);
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
        pipeline.stop(id, Attempt{1});
        const auto length = static_cast<Position>(requests[i].text.size());
        const Position room = requests[i].finish_rule().room_at(length);
        last_useful = std::max(last_useful, length + room - 2);
    }
    pipeline.run_dry();
    CHECK(pipeline.world.tensors_all_free());
    check_no_page_held(*pipeline.segment_actors.front()->scheduler(), options);
    // No row was computed after the last one whose token could be committed.
    CHECK(pipeline.backends.front()->highest_position <= last_useful);
    if (options.self_draft && options.self_draft->adapter)
        CHECK(pipeline.backends.front()->adapter_gaps == 0);
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
