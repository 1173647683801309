// Drafts that miss verdicts: they catch up within the answer, and keep nothing after its end.
#include <random>
#include <vector>

#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

std::uint64_t open_at_draft(Cluster& cluster) {
    return cluster.world.gauges(kTheDraft)[static_cast<std::size_t>(gauges::kRequests)];
}

void work(DraftBench& bench) {
    while (bench.context.run_job() || bench.context.fire_timer()) {
    }
}
/// The text goes on, and the draft does not learn of it.
void miss_token(DraftBench& bench) {
    bench.text.push_back(plain_next(bench.spec, bench.text));
}
/// The Begin that was asked for, when the text had `length` tokens.
void begin_again(DraftBench& bench, std::size_t length) {
    BeginPayload again{bench.spec};
    again.text.assign(bench.text.begin(), bench.text.begin() + static_cast<std::ptrdiff_t>(length));
    again.replayed = static_cast<std::int32_t>(length - bench.spec.text.size());
    bench.actor.on_control(kConductor, control::Begin{.request = kRequest,
                                                      .attempt = bench.attempt,
                                                      .payload = encode_begin(again)});
}

}  // namespace

TEST_CASE("a draft that missed verdicts proposes again before the answer ends") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        request.end_tokens.clear();
        PipelineOptions options{
            .segments = 1 + static_cast<int>(seed % 3), .drafting = Drafting::Oracle, .seed = seed};
        options.gamma = 2;
        options.dispatch.start = static_cast<StartRule>(seed % 2);
        const Oracle oracle = plain_answer(request);
        Cluster cluster{options};
        cluster.teach(whole_text(request, oracle));
        REQUIRE(cluster.submit(request));
        // Where the text ends as far as the draft has learned of it by verdicts.
        auto known_end = static_cast<Position>(request.text.size());
        bool knows_more = false;
        cluster.world.tap = [&](StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
            if (to == kTheDraft && kind == static_cast<std::uint16_t>(msg::Kind::Verdict)) {
                const auto verdict = decode_message<msg::Verdict>(bytes).value();
                if (verdict.base == known_end) known_end += static_cast<Position>(verdict.count);
            } else if (kind == static_cast<std::uint16_t>(msg::Kind::Proposal)) {
                const auto said = decode_message<msg::Proposal>(bytes).value();
                knows_more |= said.root_position >= known_end;
            }
        };
        cluster.world.run([&] { return cluster.answers[0]->tokens.size() >= 4; });
        const std::uint64_t loses = 1 + seed % 3;
        std::uint64_t lost = 0;
        cluster.world.no_room = [&](StageId, StageId to, std::uint16_t kind) {
            const bool full = to == kTheDraft && lost < loses &&
                              kind == static_cast<std::uint16_t>(msg::Kind::Verdict);
            lost += full ? 1 : 0;
            return full;
        };
        cluster.world.run([&] { return lost == loses; });
        CHECK_FALSE(knows_more);
        cluster.run_until_last_ended();
        CHECK(cluster.answers[0]->tokens == oracle.answer);
        CHECK(knows_more);
        cluster.run_dry();
        CHECK(open_at_draft(cluster) == 0);
    }
}

TEST_CASE("drafts that miss the end of every answer keep none of them") {
    const Request request = small_request(3);
    const Oracle oracle = plain_answer(request);
    Cluster cluster{{.segments = 2, .drafting = Drafting::Oracle}};
    cluster.teach(whole_text(request, oracle));
    bool loses = true;
    cluster.world.no_room = [&](StageId, StageId to, std::uint16_t kind) {
        return loses && to == kTheDraft && kind == static_cast<std::uint16_t>(msg::Kind::Verdict);
    };
    for (std::uint32_t i = 0; i < kRequestsMax + 6; ++i) {
        const RequestId id = cluster.submit(request).value();
        cluster.run_until_last_ended();
        CHECK(cluster.answers.back()->tokens == oracle.answer);
        cluster.conductor.close(id);
    }
    cluster.run_dry();
    CHECK(open_at_draft(cluster) == 0);
    // There is a place for the next one.
    loses = false;
    const std::uint64_t used = cluster.scheduler().proposals().used;
    REQUIRE(cluster.submit(request));
    cluster.run_until_last_ended();
    CHECK(cluster.scheduler().proposals().used > used + 1);
}

TEST_CASE("a draft that missed verdicts asks once, and then reads on where it was") {
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead, DraftPace::Lockstep}) {
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{plan_of({.pace = pace, .gamma = 4, .gamma_early = 2}),
                         with_model(backend)};
        Request request = request_of(70);
        bench.begin(request);
        work(bench);
        const std::uint64_t rows = bench.context.counted[counters::kDraftRows];
        CHECK(rows > 70);
        miss_token(bench);
        miss_token(bench);
        bench.verdict({plain_next(bench.spec, bench.text)});
        REQUIRE(bench.context.posted.size() == 1);
        const auto wanted = std::get<control::BeginWanted>(bench.context.posted[0]);
        CHECK(wanted.request == kRequest);
        CHECK(wanted.attempt == Attempt{1});
        CHECK(wanted.position == static_cast<Position>(bench.text.size()) - 1);
        bench.verdict({plain_next(bench.spec, bench.text)});  // held, with the one before
        (void)bench.proposals();
        work(bench);
        CHECK(bench.proposals().empty());
        CHECK(bench.context.posted.size() == 1);
        begin_again(bench, static_cast<std::size_t>(wanted.position));
        work(bench);
        const std::vector<msg::Proposal> said = bench.proposals();
        REQUIRE_FALSE(said.empty());
        CHECK(said.back().root_position == bench.root());
        CHECK(bench.context.counted[counters::kDraftRows] - rows < 60);
        CHECK_FALSE(bench.context.failure);
    }
}

TEST_CASE("a draft that asked and is stopped instead ignores the Begin, and begins the next turn") {
    DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 2}), with_lookup()};
    Request request = request_of(5);
    request.text = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    bench.begin(request);
    miss_token(bench);
    bench.verdict({4});
    REQUIRE(bench.context.posted.size() == 1);
    (void)bench.proposals();
    bench.deliver(kConductor, msg::Stop{bench.route()});
    begin_again(bench, bench.text.size());
    bench.verdict({1});
    CHECK(bench.proposals().empty());
    CHECK(bench.context.posted.size() == 1);
    bench.begin(request, 2);
    CHECK_FALSE(bench.proposals().empty());
}

TEST_CASE("a draft that asked for its Begin is not stopped by the Stop of an attempt before") {
    DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 2}), with_lookup()};
    Request request = request_of(5);
    request.text = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    bench.begin(request, 2);
    miss_token(bench);
    bench.verdict({4});
    REQUIRE(bench.context.posted.size() == 1);
    (void)bench.proposals();
    bench.deliver(kConductor, msg::Stop{{kRequest, Attempt{1}, Epoch{1}}});
    begin_again(bench, bench.text.size());
    CHECK_FALSE(bench.proposals().empty());
}

TEST_CASE("a draft that misses any verdicts, at any time, proposes for the text that there is") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        FakeBackend backend{0, kFakeLayers, 1024};
        const auto pace = static_cast<DraftPace>(seed % 3);
        const GrowthRule rule{.pace = pace, .gamma = 4, .gamma_early = 2};
        DraftBench bench{plan_of(rule), seed % 4 == 0 ? with_lookup() : with_model(backend)};
        bench.begin(request_of(seed));
        for (int step = 0; step < 200 && bench.text.size() < 280; ++step) {
            if (random() % 2 == 0) bench.context.run_job();
            if (random() % 8 == 0) bench.context.fire_timer();
            if (random() % 6 == 0) miss_token(bench);
            if (random() % 3 == 0) bench.verdict({plain_next(bench.spec, bench.text)});
            const bool asked = !bench.context.posted.empty();
            if (asked && random() % 3 == 0) {
                const auto wanted = std::get<control::BeginWanted>(bench.context.posted.front());
                bench.context.posted.clear();
                const auto known = static_cast<std::size_t>(wanted.position);
                begin_again(bench, known + random() % (bench.text.size() - known + 1));
            }
            for (const msg::Proposal& said : bench.proposals()) {
                CHECK(said.root_position <= bench.root());
                CHECK(said.root_token == bench.text[static_cast<std::size_t>(said.root_position)]);
            }
        }
        bench.verdict({plain_next(bench.spec, bench.text)});
        if (!bench.context.posted.empty()) begin_again(bench, bench.text.size());
        bench.verdict({plain_next(bench.spec, bench.text)});
        work(bench);
        const std::vector<msg::Proposal> said = bench.proposals();
        REQUIRE_FALSE(bench.context.failure);
        if (seed % 4 == 0) continue;  // lookup may find nothing
        REQUIRE_FALSE(said.empty());
        CHECK(said.back().root_position == bench.root());
    }
}
