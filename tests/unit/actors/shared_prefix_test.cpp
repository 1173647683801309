// Pipelines whose requests begin alike: what is shared is computed once, and changes no token.
#include <random>

#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr Drafting kDraftings[] = {Drafting::None,   Drafting::Lookup,     Drafting::Adversary,
                                   Drafting::Oracle, Drafting::SlowOracle, Drafting::Mute,
                                   Drafting::Babble, Drafting::SkipLayers, Drafting::Programme,
                                   Drafting::Search};

}  // namespace

TEST_CASE("a text that begins as one before runs no rows for the blocks that they share") {
    // Every second time the first turn was stopped in the middle, and the stages are still busy
    // with it when the second begins.
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const int segments = 1 + static_cast<int>(seed % 4);
        const bool stopped = seed % 2 == 0;
        Request first = small_request(seed);
        while (first.text.size() < 50) first.text.push_back(static_cast<TokenId>(seed % 7));
        first.context = 256;
        if (seed % 5 == 0) first.cache_salt = "a tenant";
        const Oracle oracle = plain_answer(first);
        PipelineOptions options{.segments = segments, .drafting = Drafting::Lookup, .seed = seed};
        options.dispatch.batches_in_flight_max = 1 + static_cast<std::uint32_t>(seed % 3);
        Pipeline pipeline{options, first, oracle};
        pipeline.open_and_begin(kOne, first);
        pipeline.world.run([&] {
            return pipeline.conductor.finished >= 1 ||
                   (stopped && pipeline.conductor.verdicts >= 3);
        });
        if (stopped) {
            pipeline.stop(kOne, Attempt{1});
        } else {
            pipeline.run_dry();
        }
        Request second = next_turn(first, answer_of(pipeline, kOne));
        const bool other_salt = seed % 10 == 0;
        if (other_salt) second.cache_salt = "another tenant";
        const auto prefill_rows = [&] {
            return pipeline.world.counted(kFirstSegment, counters::kPrefillRows);
        };
        const std::uint64_t prefilled = prefill_rows();
        run_turn(pipeline, second);
        CHECK(answer_of(pipeline, RequestId{2}) == plain_answer(second).answer);
        // Of a turn that was stopped the last verdict may be unknown to the first segment, and
        // what was in the cache alone counts: the new root's row was not.
        const std::size_t known = second.text.size() - 9 - 1;
        const std::size_t shared = other_salt ? 0 : known / kKvPageSlots * kKvPageSlots;
        const std::uint64_t rows = prefill_rows() - prefilled;
        if (stopped) {
            CHECK(rows >= second.text.size() - 1 - shared);
            CHECK(rows <= second.text.size() - 1 - (other_salt ? 0 : kKvPageSlots));
        } else {
            CHECK(rows == second.text.size() - 1 - shared);
        }
    }
}

TEST_CASE("requests that begin alike at the same time compute what they share once") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        PipelineOptions options{.segments = 1 + static_cast<int>(seed % 3),
                                .drafting = kDraftings[seed % std::size(kDraftings)],
                                .seed = seed,
                                .kv_slots = 2048};
        options.dispatch.prefill_rows = 20 + static_cast<std::uint32_t>(seed);
        std::vector<Request> requests;
        for (std::uint64_t i = 0; i < 4; ++i) {
            Request request = small_request(7);
            while (request.text.size() < 100)
                request.text.push_back(static_cast<TokenId>(seed % 9));
            request.text.push_back(static_cast<TokenId>(i));
            make_sampled(request, seed + i);
            request.context = 200;
            requests.push_back(std::move(request));
        }
        Cluster cluster{options};
        std::vector<Oracle> oracles;
        for (const Request& request : requests) {
            oracles.push_back(plain_answer(request));
            cluster.teach(whole_text(request, oracles.back()));
            REQUIRE(cluster.submit(request));
        }
        cluster.run_until_ended();
        for (std::size_t i = 0; i < oracles.size(); ++i) {
            CHECK(cluster.answers[i]->tokens == oracles[i].answer);
            CHECK(cluster.answers[i]->stats.cached_tokens == (i == 0 ? 0 : 96));
            CHECK(cluster.answers[i]->stats.prompt_tokens == (i == 0 ? 101 : 5));
        }
        CHECK(cluster.world.counted(kFirstSegment, counters::kPrefillRows) == 100 + 3 * 4);
        CHECK(cluster.world.counted(kFirstSegment, counters::kCachedRows) == 3 * 96);
    }
}

TEST_CASE("cached blocks make room for running requests, and are computed anew when asked for") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        Request first = small_request(seed);
        first.max_tokens = 8;
        Request other = small_request(seed + 100);
        other.max_tokens = 8;
        for (Request* each : {&first, &other}) {
            while (each->text.size() < 70) each->text.push_back(static_cast<TokenId>(seed % 11));
            each->context = 128;
        }
        // The cache holds one context.
        PipelineOptions options{.segments = 2 + static_cast<int>(seed % 3),
                                .drafting = Drafting::Babble,
                                .seed = seed,
                                .kv_slots = 128};
        options.dispatch.prefill_rows = 10 + static_cast<std::uint32_t>(random() % 55);
        options.dispatch.batches_in_flight_max = 1 + static_cast<std::uint32_t>(seed % 3);
        add_exit(options, static_cast<Exit>(random() % kExits), random);
        Pipeline pipeline{
            options,
            {whole_text(first, plain_answer(first)), whole_text(other, plain_answer(other))}};
        std::uint64_t id = 0;
        for (const Request& request : {first, other, first, first, other}) {
            pipeline.open_and_begin(RequestId{++id}, request);
            pipeline.run_until_finished(static_cast<int>(id));
            CHECK(answer_of(pipeline, RequestId{id}) == plain_answer(request).answer);
        }
        pipeline.run_dry();
        CHECK(pipeline.world.tensors_all_free());
        check_no_page_held(*pipeline.segment_actors.front()->scheduler(), options);
    }
}
