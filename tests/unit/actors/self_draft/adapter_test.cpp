// A target that drafts with an adapter at its exit: which rows the adapter is given, and that it
// has the key of every token that a row sees, whatever is accepted, stopped or begun anew.
#include <array>
#include <random>
#include <vector>

#include "actors/protocol/counters.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// Kangaroo as configured, but for the exit and what `seed` draws.
PipelineOptions kangaroo(int exit, std::uint64_t seed) {
    std::mt19937_64 random{seed * 5 + 3};
    PipelineOptions options{.seed = seed, .kv_slots = 2048};
    options.segments = exit <= kFakeLayers / 2 ? 1 + static_cast<int>(random() % 2) : 1;
    options.dispatch.start = StartRule::AtOnce;
    options.dispatch.rows_max = 2 + static_cast<std::uint32_t>(random() % 9);
    options.dispatch.prefill_rows = 1 + static_cast<std::uint32_t>(random() % 40);
    options.candidate_right = std::array{0.5, 0.9, 1.0}[seed % 3];
    options.draws_itself = random() % 2 == 0;
    options.on_devices = static_cast<unsigned>(random());
    SelfDraftOptions& self = options.self_draft.emplace();
    self.head = HeadId::Adapter;
    self.adapter = true;
    self.exit = exit;
    self.gamma = 6;
    self.confidence_min = 0.6F;
    self.auto_off = false;
    return options;
}

/// Rows that have run as far as the exit, and rows that went through it without a halt.
struct ExitRows {
    explicit ExitRows(Pipeline& pipeline, int exit) {
        pipeline.backends.front()->on_rows = [this, exit](std::span<const Row> rows) {
            for (const Row& row : rows) {
                if (row.first >= 2 * exit) continue;
                (row.last == 2 * exit ? halted : past) += 1;
            }
        };
    }
    ExitRows(const ExitRows&) = delete;
    ExitRows& operator=(const ExitRows&) = delete;
    std::size_t halted = 0;
    std::size_t past = 0;
};

}  // namespace

TEST_CASE("every row that comes through the exit is given to the adapter, once") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const int exit = 1 + static_cast<int>(seed % (kFakeLayers - 1));
        const PipelineOptions options = kangaroo(exit, seed);
        Request request = small_request(seed);
        if (seed % 2 == 0) make_sampled(request, seed);
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        const ExitRows rows{pipeline, exit};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const FakeBackend& backend = *pipeline.backends.front();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        CHECK(rows.past == 0);
        CHECK(backend.adapter_rows == rows.halted);
        CHECK(backend.adapter_gaps == 0);
        CHECK(pipeline.world.counted(kFirstSegment, counters::kDraftRows) > 0);
    }
}

TEST_CASE("eight requests that draft with an adapter keep their keys apart") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        PipelineOptions options = kangaroo(1 + static_cast<int>(seed % (kFakeLayers - 1)), seed);
        options.dispatch.requests_max = 1 + static_cast<std::uint32_t>(seed % 8);
        options.self_draft->auto_off = seed % 4 == 0;
        std::vector<Request> requests;
        for (std::uint64_t i = 0; i < 8; ++i) {
            requests.push_back(small_request(seed * 10 + i));
            requests.back().context = 160;
            requests.back().max_tokens = 24;
            if (i % 2 == 1) make_sampled(requests.back(), seed + i);
        }
        check_exact(options, requests);
    }
}

TEST_CASE("rounds without a draft leave the adapter no gap that a later turn would see") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        const PipelineOptions options = kangaroo(3, seed);
        Request first = small_request(seed);
        first.speculation.on = false;
        Pipeline pipeline{options, first, plain_answer(first)};
        pipeline.open_and_begin(kOne, first);
        pipeline.run_until_finished();
        const FakeBackend& backend = *pipeline.backends.front();
        CHECK(pipeline.world.counted(kFirstSegment, counters::kDraftRows) == 0);
        CHECK(backend.adapter_rows >= first.text.size());
        // Its text is in the prefix cache, and with it the adapter's keys.
        Request second = next_turn(first, answer_of(pipeline, kOne));
        second.speculation.on = true;
        run_turn(pipeline, second);
        CHECK(answer_of(pipeline, RequestId{2}) == plain_answer(second).answer);
        CHECK(pipeline.world.counted(kFirstSegment, counters::kDraftRows) > 0);
        CHECK(backend.adapter_gaps == 0);
    }
}

TEST_CASE("a replay and a turn after a stop give the adapter the whole text again") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const PipelineOptions options = kangaroo(1 + static_cast<int>(seed % 4), seed);
        Request request = small_request(seed);
        request.context = 160;
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        for (int again = 0; again < 3; ++again) {
            const std::size_t until = pipeline.backends.front()->adapter_rows + 3 + seed % 11;
            pipeline.world.run([&] {
                return pipeline.backends.front()->adapter_rows >= until ||
                       pipeline.conductor.finished > 0;
            });
            if (pipeline.conductor.finished > 0) break;
            const std::vector<TokenId> so_far = answer_of(pipeline, kOne);
            BeginPayload replay{request};
            replay.text.insert(replay.text.end(), so_far.begin(), so_far.end());
            replay.replayed = static_cast<Position>(so_far.size());
            pipeline.begin(kOne, replay, pipeline.conductor.log.restart(kOne).value());
        }
        pipeline.run_until_finished();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        const Request turn = next_turn(request, oracle.answer);
        run_turn(pipeline, turn);
        CHECK(answer_of(pipeline, RequestId{2}) == plain_answer(turn).answer);
        CHECK(pipeline.backends.front()->adapter_gaps == 0);
    }
}

TEST_CASE("an adapter without an exit, or with another head, is refused") {
    SelfDraftOptions options = *kangaroo(3, 1).self_draft;
    CHECK(validate(options, kFakeLayers).ok());
    options.head = HeadId::Final;
    CHECK_FALSE(validate(options, kFakeLayers).ok());
    options.head = HeadId::Adapter;
    options.exit = 0;
    options.skip = SkipSet{kFakeLayers};
    options.skip.set(3, true);
    CHECK_FALSE(validate(options, kFakeLayers).ok());
    options.adapter = false;
    CHECK(validate(options, kFakeLayers).ok());
}
