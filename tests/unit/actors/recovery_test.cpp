// Decoding while stages die and come back: for any loss at any time the tokens are
// plain decoding's, each answer ends once, and no slot or request leaks.
#include <array>
#include <cstdlib>
#include <random>

#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/cluster.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// More with PACELINE_TEST_SEEDS=n.
std::uint64_t seeds() {
    const char* wanted = std::getenv("PACELINE_TEST_SEEDS");
    return wanted == nullptr ? 12 : std::strtoull(wanted, nullptr, 10);
}

constexpr Drafting kDraftings[] = {Drafting::None,       Drafting::Lookup,    Drafting::Oracle,
                                   Drafting::SlowOracle, Drafting::Babble,    Drafting::Guesses,
                                   Drafting::SkipLayers, Drafting::Programme, Drafting::Search,
                                   Drafting::Eagle};

PipelineOptions options_for(std::uint64_t seed, int segments, Drafting drafting) {
    PipelineOptions options{.segments = segments, .drafting = drafting, .seed = seed};
    std::mt19937_64 random{seed * 31 + static_cast<std::uint64_t>(segments)};
    options.dispatch.start = static_cast<StartRule>(random() % 3);
    options.dispatch.shape = static_cast<BatchShape>(random() % 2);
    options.dispatch.batches_in_flight_max = 1 + static_cast<std::uint32_t>(seed % 4);
    options.dispatch.rows_max = 2 + static_cast<std::uint32_t>(seed % 5);
    options.dispatch.prefill_rows = 1 + static_cast<std::uint32_t>(seed % 20);
    add_exit(options, static_cast<Exit>(random() % kExits), random);
    // No slot, the first pages, or all of them.
    constexpr std::array kRetained{0, 3 * kKvPageSlots, 4096};
    options.retained_slots = kRetained[seed % kRetained.size()];
    options.on_devices = seed % 2 == 0 ? ~0U : 0U;
    return options;
}

/// Requests with their answers, running in one cluster.
struct Load {
    /// `longer`: tokens that every prompt has besides.
    Load(Cluster& the_cluster, std::uint64_t seed, std::uint64_t count, std::size_t longer = 0)
        : cluster{the_cluster} {
        for (std::uint64_t i = 0; i < count; ++i) {
            Request request = small_request(seed * 10 + i);
            if ((seed + i) % 2 == 0) make_sampled(request, seed);
            request.context = 160 + static_cast<Position>(longer);
            for (std::size_t at = 0; at < longer; ++at)
                request.text.push_back(static_cast<TokenId>((seed + at * at) % kFakeVocab));
            if ((seed + i) % 3 == 0)
                request.scores = {.answer = true, .prompt = seed % 2 == 0, .top = 2};
            oracles.push_back(plain_answer(request));
            std::vector<TokenId> text = request.text;
            text.insert(text.end(), oracles.back().answer.begin(), oracles.back().answer.end());
            cluster.teach(std::move(text));
            const Result<RequestId> taken = cluster.submit(request);
            REQUIRE(taken);
            ids.push_back(taken.value());
            requests.push_back(std::move(request));
        }
    }
    void check() const {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const ReceivedAnswer& answer = *cluster.answers[i];
            CHECK(answer.status.ok());
            CHECK(answer.ends == 1);
            CHECK(answer.tokens == oracles[i].answer);
            CHECK(answer.scores == oracles[i].scores);
            CHECK(answer.prompt_scores == oracles[i].prompt_scores);
            CHECK(answer.stats.finish == oracles[i].finish);
            const auto text = cluster.conductor.text(ids[i]);
            const std::size_t length = requests[i].text.size() + answer.tokens.size();
            CHECK(text.size() == length);
        }
    }
    Cluster& cluster;
    std::vector<Request> requests;
    std::vector<Oracle> oracles;
    std::vector<RequestId> ids;
};

/// Nothing is held any more: no tensor slot, no page, and a request can still be answered.
void check_nothing_leaked(Cluster& cluster, const PipelineOptions& options) {
    cluster.run_dry();
    CHECK(cluster.world.tensors_all_free());
    CHECK(cluster.conductor.open_requests() == 0);
    CHECK(cluster.scheduler().pages().in_use() == 0);
    Request whole = small_request(77);
    whole.context = options.kv_slots;
    whole.max_tokens = 3;
    const Oracle oracle = plain_answer(whole);
    REQUIRE(cluster.submit(whole));
    cluster.run_until_ended();
    CHECK(cluster.answers.back()->tokens == oracle.answer);
    cluster.run_dry();
    CHECK(cluster.world.tensors_all_free());
}

void lose_and_rejoin(Cluster& cluster, std::mt19937_64& random, StageId victim, int pause) {
    if (!cluster.world.lives(victim)) return;
    cluster.lose(victim);
    cluster.run_steps(static_cast<int>(random() % static_cast<std::uint64_t>(pause)));
    cluster.rejoin(victim);
}

StageId random_victim(std::mt19937_64& random, int segments, bool drafts) {
    const auto choice =
        static_cast<int>(random() % static_cast<std::uint64_t>(segments + (drafts ? 1 : 0)));
    return choice < segments ? segment_id(choice + 1) : kTheDraft;
}

}  // namespace

TEST_CASE("segments behind a lost one keep their keys: only those up to it compute a text again") {
    for (const int victim : {1, 2, 3, 4}) {
        CAPTURE(victim);
        const PipelineOptions options{.segments = 4, .drafting = Drafting::None, .seed = 3};
        Cluster cluster{options};
        const Load load{cluster, 1, 1, 200};
        const auto rows_of = [&](int segment) {
            return cluster.world.counted(segment_id(segment), counters::kPrefillRows);
        };
        const std::size_t prompt = load.requests[0].text.size();
        while (cluster.answers[0]->tokens.size() < 20) cluster.run_steps(1);
        CHECK(rows_of(4) == prompt - 1);
        cluster.lose(segment_id(victim));
        cluster.rejoin(segment_id(victim));
        const std::size_t text = prompt + cluster.answers[0]->tokens.size();
        cluster.run_until_ended();
        cluster.run_dry();
        load.check();
        CHECK(cluster.answers[0]->stats.replays == 1);
        // Whole blocks are kept: up to 31 tokens behind the last one are computed everywhere.
        const std::size_t kept = victim == 1 ? 0 : (text - 1) / kKvPageSlots * kKvPageSlots;
        for (int segment = 1; segment <= 4; ++segment) {
            CAPTURE(segment);
            const std::size_t again = text - 1 - (segment > victim ? kept : 0);
            CHECK(rows_of(segment) == prompt - 1 + again);
        }
        check_nothing_leaked(cluster, options);
    }
}

TEST_CASE(
    "of cached text the lost segment alone runs layers again if the one before has retained its "
    "states") {
    for (const int victim : {2, 3, 4}) {
        for (const std::int32_t retained : {2 * kKvPageSlots, 1024}) {
            CAPTURE(victim);
            CAPTURE(retained);
            const PipelineOptions options{
                .segments = 4, .drafting = Drafting::None, .seed = 3, .retained_slots = retained};
            Cluster cluster{options};
            const Load load{cluster, 1, 1, 200};
            const auto sublayers_of = [&](int segment) {
                return cluster.world.counted(segment_id(segment), counters::kPrefillSublayers);
            };
            const std::size_t prompt = load.requests[0].text.size();
            while (cluster.answers[0]->tokens.size() < 20) cluster.run_steps(1);
            const std::uint64_t per_row = sublayers_of(4) / (prompt - 1);
            cluster.lose(segment_id(victim));
            cluster.rejoin(segment_id(victim));
            const std::size_t text = prompt + cluster.answers[0]->tokens.size();
            cluster.run_until_ended();
            cluster.run_dry();
            load.check();
            const std::size_t cached = (text - 1) / kKvPageSlots * kKvPageSlots;
            const std::size_t supplied =
                std::min(cached, static_cast<std::size_t>(retained));  // the lowest slots
            for (int segment = 1; segment <= 4; ++segment) {
                CAPTURE(segment);
                std::size_t rows = prompt - 1 + text - 1;
                if (segment > victim) rows -= cached;
                if (segment < victim) rows -= supplied;
                CHECK(sublayers_of(segment) == rows * per_row);
            }
            check_nothing_leaked(cluster, options);
        }
    }
}

TEST_CASE("a stage that is lost at any moment and comes back changes no token") {
    for (const Drafting drafting : kDraftings) {
        for (int segments = 1; segments <= 4; ++segments) {
            for (std::uint64_t seed = 1; seed <= seeds() * 3; ++seed) {
                CAPTURE(static_cast<int>(drafting));
                CAPTURE(segments);
                CAPTURE(seed);
                std::mt19937_64 random{seed};
                const PipelineOptions options = options_for(seed, segments, drafting);
                Cluster cluster{options};
                cluster.world.jump_max = Micros{1'000'000};
                cluster.world.channel_room = 1 + seed % 3;
                const Load load{cluster, seed, 1};
                cluster.run_steps(static_cast<int>(random() % 400));
                lose_and_rejoin(cluster, random,
                                random_victim(random, segments, drafting != Drafting::None), 60);
                cluster.run_until_ended();
                cluster.run_dry();
                load.check();
                check_nothing_leaked(cluster, options);
            }
        }
    }
}

TEST_CASE("a segment lost in a long prefill changes no token, whatever shares its batches") {
    for (const std::uint32_t prefill_rows : {64U, 200U, kBatchRowsMax}) {
        for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
            CAPTURE(prefill_rows);
            CAPTURE(seed);
            std::mt19937_64 random{seed};
            const int segments = 1 + static_cast<int>(seed % 4);
            PipelineOptions options = options_for(seed, segments, Drafting::Lookup);
            options.kv_slots = 4096;
            options.dispatch.prefill_rows = prefill_rows;
            Cluster cluster{options};
            cluster.world.jump_max = Micros{1'000'000};
            cluster.world.channel_room = 1 + seed % 3;
            const Load load{cluster, seed, 1 + seed % 3, 600};
            const StageId victim = random_victim(random, segments, false);
            // Rows are in the cache of the first segment, and others are on their way.
            cluster.world.run(
                [&] { return cluster.world.counted(kFirstSegment, counters::kPrefillRows) >= 50; });
            CHECK(cluster.answers[0]->tokens.empty());
            lose_and_rejoin(cluster, random, victim, 60);
            cluster.run_until_ended();
            cluster.run_dry();
            load.check();
            CHECK(cluster.answers[0]->stats.replays == 1);
            check_nothing_leaked(cluster, options);
        }
    }
}

TEST_CASE("stages that are lost again and again, also during the replay, change no token") {
    for (const Drafting drafting : kDraftings) {
        for (int segments = 1; segments <= 4; ++segments) {
            for (std::uint64_t seed = 1; seed <= seeds() * 2; ++seed) {
                CAPTURE(static_cast<int>(drafting));
                CAPTURE(segments);
                CAPTURE(seed);
                std::mt19937_64 random{seed * 31};
                const PipelineOptions options = options_for(seed, segments, drafting);
                Cluster cluster{options, {.poison_limit = 1000}};
                cluster.world.jump_max = Micros{1'000'000};
                cluster.world.channel_room = 1 + seed % 3;
                const Load load{cluster, seed, 1 + seed % 4};
                for (int round = 0; round < 6; ++round) {
                    cluster.run_steps(static_cast<int>(random() % 150));
                    lose_and_rejoin(cluster, random,
                                    random_victim(random, segments, drafting != Drafting::None),
                                    40);
                }
                cluster.run_until_ended();
                cluster.run_dry();
                load.check();
                check_nothing_leaked(cluster, options);
            }
        }
    }
}

TEST_CASE("stages that are away at the same time change no token") {
    for (int segments = 2; segments <= 4; ++segments) {
        for (std::uint64_t seed = 1; seed <= seeds() * 4; ++seed) {
            CAPTURE(segments);
            CAPTURE(seed);
            std::mt19937_64 random{seed * 17};
            const PipelineOptions options = options_for(seed, segments, Drafting::SlowOracle);
            Cluster cluster{options, {.poison_limit = 1000}};
            cluster.world.jump_max = Micros{1'000'000};
            cluster.world.channel_room = 1 + seed % 3;
            const Load load{cluster, seed, 1 + seed % 3};
            std::set<StageId> away;
            for (int round = 0; round < 12; ++round) {
                cluster.run_steps(static_cast<int>(random() % 80));
                const StageId one = random_victim(random, segments, true);
                if (away.contains(one)) {
                    cluster.rejoin(one);
                    away.erase(one);
                } else {
                    cluster.lose(one);
                    away.insert(one);
                }
            }
            for (const StageId one : away) cluster.rejoin(one);
            cluster.run_until_ended();
            cluster.run_dry();
            load.check();
            check_nothing_leaked(cluster, options);
        }
    }
}

TEST_CASE("a draft that is away is not waited for, and proposes again when it is back") {
    const Request request = small_request(5);
    PipelineOptions options{.segments = 2, .drafting = Drafting::Oracle};
    options.dispatch.proposal_wait = Micros{100'000};
    Cluster cluster{options};
    const Load load{cluster, 5, 1};
    cluster.world.run([&] { return cluster.answers[0]->tokens.size() >= 5; });
    cluster.lose(kTheDraft);
    cluster.run_steps(10);
    const std::uint64_t waited = cluster.scheduler().proposals().waits_expired;
    const Micros lost_at = cluster.world.now;
    const std::size_t before = cluster.answers[0]->tokens.size();
    cluster.world.run([&] { return cluster.answers[0]->tokens.size() >= before + 10; });
    CHECK(cluster.scheduler().proposals().waits_expired == waited);
    CHECK(cluster.world.now - lost_at < Micros{100'000});
    const std::uint64_t used = cluster.scheduler().proposals().used;
    cluster.rejoin(kTheDraft);
    cluster.run_until_ended();
    CHECK(cluster.scheduler().proposals().used > used);
    CHECK(cluster.answers[0]->stats.replays == 0);
    cluster.run_dry();
    load.check();
}

TEST_CASE("a further turn after a loss computes its text anew and is exact") {
    for (std::uint64_t seed = 1; seed <= seeds() * 4; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const int segments = 1 + static_cast<int>(seed % 4);
        const PipelineOptions options = options_for(seed, segments, Drafting::Lookup);
        Cluster cluster{options};
        cluster.world.jump_max = Micros{1'000'000};
        cluster.world.channel_room = 1 + seed % 3;
        Request first = small_request(seed);
        const RequestId id = cluster.submit(first, seed % 2 == 0 ? 7 : 0).value();
        cluster.run_until_ended();
        if (seed % 3 == 0) cluster.run_dry();
        const std::uint64_t prefilled =
            cluster.world.counted(kFirstSegment, counters::kPrefillRows);
        const bool loses = seed % 3 != 0;
        // The loss comes between the turns, or when the second one is on its way.
        if (loses && seed % 3 == 1) {
            lose_and_rejoin(cluster, random, random_victim(random, segments, false), 100);
        }
        Request whole = first;
        const auto so_far = cluster.conductor.text(id);
        whole.text.assign(so_far.begin(), so_far.end());
        for (TokenId token = 0; token < 9; ++token) whole.text.push_back(token);
        const Oracle oracle = plain_answer(whole);
        REQUIRE(cluster.submit(whole));
        if (loses && seed % 3 == 2) {
            cluster.run_steps(static_cast<int>(random() % 200));
            lose_and_rejoin(cluster, random, random_victim(random, segments, false), 100);
        }
        cluster.run_until_ended();
        CHECK(cluster.answers[1]->tokens == oracle.answer);
        CHECK(cluster.answers[1]->ends == 1);
        if (!loses) {
            // A Stop may come before the verdict on the last tokens that were received.
            const auto held = static_cast<std::int32_t>(so_far.size()) - 1;
            const std::int32_t cached = cluster.answers[1]->stats.cached_tokens;
            CHECK(cached <= held / kKvPageSlots * kKvPageSlots);
            const auto rows = static_cast<std::int32_t>(whole.text.size()) - cached;
            CHECK(cluster.answers[1]->stats.prompt_tokens == rows);
            CHECK(cluster.world.counted(kFirstSegment, counters::kPrefillRows) ==
                  prefilled + static_cast<std::uint64_t>(rows) - 1);
        }
        check_nothing_leaked(cluster, options);
    }
}
