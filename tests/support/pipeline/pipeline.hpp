// Pipeline: a conductor, a draft and 1..4 target segments over FakeBackends in a ShuffledWorld,
// and the plain decoder as the oracle of what they must commit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/commit_log.hpp"
#include "actors/decoding/grammar/grammar_store.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "actors/decoding/request.hpp"
#include "tests/support/pipeline/pipeline_drafts.hpp"
#include "tests/support/pipeline/pipeline_options.hpp"
#include "tests/support/pipeline/shuffled_world.hpp"
#include "tests/support/toy/toy_oracle.hpp"

namespace paceline::testing {

inline constexpr RequestId kOne{1};  // of tests with one request

/// Commits verdicts and counts answers.
class TestConductor final : public Actor {
public:
    void on_start(StageContext&) override {}
    void handle(StageId, std::uint16_t kind, std::span<const std::byte> bytes) override;
    CommitLog log;
    FinishReason finish = FinishReason::None;
    int finished = 0;
    int verdicts = 0;
};

void connect_taps(ShuffledWorld& world, const PipelineOptions& options);
std::vector<TokenId> whole_text(const Request& request, const Oracle& oracle);

class Pipeline {
public:
    Pipeline(const PipelineOptions& options, const Request& request, const Oracle& oracle)
        : Pipeline{options, {whole_text(request, oracle)}} {}
    /// `texts`: prompt and answer of the requests that will come, for drafts that know them.
    Pipeline(const PipelineOptions& options, const Texts& texts);

    void begin(RequestId id, const BeginPayload& spec, Attempt attempt);
    void begin(RequestId id, const Request& request, Attempt attempt) {
        begin(id, BeginPayload{request}, attempt);
    }
    void open_and_begin(RequestId id, const BeginPayload& spec);
    void open_and_begin(RequestId id, const Request& request) {
        open_and_begin(id, BeginPayload{request});
    }
    void stop(RequestId id, Attempt attempt);
    void run_until_finished(int answers = 1);
    void run_dry();

    ShuffledWorld world;
    TestConductor conductor;
    std::vector<std::unique_ptr<FakeBackend>> backends;
    std::vector<std::unique_ptr<SegmentActor>> segment_actors;
    std::unique_ptr<Actor> draft;

private:
    void add_segment(const PipelineOptions& options, int index);
    void add_draft(const PipelineOptions& options, const Texts& texts);
    int segments_;
    SentGrammars grammars_;
};

Request small_request(std::uint64_t seed);
void make_sampled(Request& request, std::uint64_t seed);

}  // namespace paceline::testing
