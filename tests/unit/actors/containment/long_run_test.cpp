// Many requests one after the other: a stage keeps a bounded number of ended requests, and never
// forgets a request that is running or can be continued.
#include <map>
#include <vector>

#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr std::uint64_t kOthers = 10'000;
constexpr std::uint64_t kKept = 8;

Request short_request(std::uint64_t seed) {
    Request request;
    request.text = {static_cast<TokenId>(seed % 11), static_cast<TokenId>(3 + seed % 5)};
    request.max_tokens = 2;
    request.context = 64;
    return request;
}

/// One request after the other, in one cluster.
struct LongRun {
    /// Whose text, with its answer, is returned.
    std::vector<TokenId> ask(const Request& request, const std::vector<TokenId>& before = {}) {
        Request whole = request;
        whole.text.insert(whole.text.begin(), before.begin(), before.end());
        const auto known = answers.try_emplace(whole.text);
        if (known.second) known.first->second = plain_answer(whole).answer;
        const Result<RequestId> taken = cluster.submit(whole);
        REQUIRE(taken);
        cluster.run_until_last_ended();
        CHECK(cluster.answers.back()->status.ok());
        CHECK(cluster.answers.back()->tokens == known.first->second);
        cluster.conductor.close(taken.value());
        std::vector<TokenId> text = std::move(whole.text);
        text.insert(text.end(), known.first->second.begin(), known.first->second.end());
        return text;
    }
    Cluster cluster{{.segments = 2, .drafting = Drafting::Lookup}};
    std::map<std::vector<TokenId>, std::vector<TokenId>> answers;  // of plain decoding, by prompt
};

}  // namespace

TEST_CASE("a conversation goes on after ten thousand other requests") {
    LongRun run;
    std::vector<std::vector<TokenId>> kept;
    for (std::uint64_t i = 0; i < kKept; ++i) kept.push_back(run.ask(short_request(i)));
    for (std::uint64_t i = 0; i < kOthers; ++i) {
        run.ask(short_request(i));
        // The first goes on now and then, the second once, and the others after all of them.
        if (i % 2'500 == 2'499) kept[0] = run.ask(short_request(i), kept[0]);
        if (i == 5'000) run.ask(short_request(i), kept[1]);
    }
    for (const auto& text : kept) run.ask(short_request(7), text);
    run.cluster.run_dry();
    CHECK(run.cluster.world.tensors_all_free());
    CHECK(run.cluster.world.gauges(kTheDraft)[static_cast<std::size_t>(gauges::kRequests)] == 0);
}

TEST_CASE("a draft follows a request that runs while ten thousand others come and go") {
    DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 2}), with_lookup()};
    Request request = request_of(5);
    request.text = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    bench.begin(request);
    CHECK_FALSE(bench.proposals().empty());
    for (std::uint64_t id = 100; id < 100 + kOthers; ++id) {
        const RequestId other{id};
        bench.actor.on_control(kConductor, control::Begin{.request = other,
                                                          .attempt = Attempt{1},
                                                          .payload = encode_begin({request})});
        bench.deliver(kConductor, msg::Stop{{other, Attempt{1}, Epoch{1}}});
    }
    (void)bench.proposals();
    bench.verdict({3, 4});
    CHECK_FALSE(bench.proposals().empty());
}

TEST_CASE(
    "a draft that reads the Stops of many requests before their Begins takes none of them up") {
    DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 2}), with_lookup()};
    Request request = request_of(5);
    request.text = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    for (std::uint64_t id = 100; id < 400; ++id) {
        bench.deliver(kConductor, msg::Stop{{RequestId{id}, Attempt{1}, Epoch{1}}});
    }
    for (std::uint64_t id = 100; id < 400; ++id) {
        bench.actor.on_control(kConductor, control::Begin{.request = RequestId{id},
                                                          .attempt = Attempt{1},
                                                          .payload = encode_begin({request})});
    }
    CHECK(bench.proposals().empty());
    CHECK_FALSE(bench.context.failure);
    bench.begin(request);
    CHECK_FALSE(bench.proposals().empty());
}

TEST_CASE("a stage that reads no Begin while hundreds of requests come and go holds none of them") {
    const Request last = short_request(7);
    const Oracle oracle = plain_answer(last);
    for (const StageId behind : {kTheDraft, segment_id(1), segment_id(2), segment_id(3)}) {
        CAPTURE(behind.value);
        Cluster cluster{{.segments = 3, .drafting = Drafting::Lookup}};
        bool is_behind = true;
        cluster.world.leaves_control_unread = [&](StageId id) { return is_behind && id == behind; };
        for (std::uint64_t i = 0; i < 3 * AttemptFilter::kHeldMax; ++i) {
            const RequestId id = cluster.submit(short_request(i)).value();
            cluster.run_steps(40);  // what can be early is on its way now
            cluster.conductor.cancel(id);
            cluster.conductor.close(id);
        }
        is_behind = false;
        REQUIRE(cluster.submit(last));
        cluster.run_until_last_ended();
        CHECK(cluster.answers.back()->tokens == oracle.answer);
        cluster.run_dry();
        CHECK(cluster.world.faults.empty());
        CHECK(cluster.world.tensors_all_free());
        for (const StageId id : {kTheDraft, segment_id(1), segment_id(2), segment_id(3)}) {
            CHECK(cluster.world.gauges(id)[static_cast<std::size_t>(gauges::kRequests)] == 0);
        }
    }
}
