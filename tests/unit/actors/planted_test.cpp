// Shows that these tests find bugs: each planted bug (ipc/base/faults.hpp) removes one safeguard
// and decoding across losses must then fail with some seed. Linked with the libraries
// that have the switches; every try is a process of its own, since a bug may end in a check.
#include <cstdio>
#include <functional>
#include <iostream>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/base/faults.hpp"
#include "runtime/loop/job_limits.hpp"
#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/conductor_bench.hpp"
#include "tests/unit/actors/draft_bench.hpp"
#include "tests/unit/actors/protocol_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr std::uint64_t kTriesMax = 400;

struct Order {
    Request request;
    Oracle oracle;
};

std::vector<Order> orders(std::uint64_t seed) {
    std::vector<Order> made;
    for (std::uint64_t i = 0; i < 1 + seed % 3; ++i) {
        Request request = small_request(seed * 10 + i);
        if ((seed + i) % 2 == 0) make_sampled(request, seed);
        request.context = 160;
        if (seed % 4 == 3) make_constrained(request, seed + i);
        if (seed % 8 == 3 && i == 0)
            request.sampling.logit_bias = {{static_cast<TokenId>(seed % kFakeVocab), 150.0F}};
        made.push_back({request, plain_answer(request)});
    }
    return made;
}

bool all_exact(Cluster& cluster, std::span<const Order> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const ReceivedAnswer& answer = *cluster.answers[i];
        if (answer.ends != 1 || !answer.status || answer.tokens != expected[i].oracle.answer) {
            return false;
        }
    }
    return true;
}

/// Whether everything is as it must be after decoding across a few losses.
bool survives(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    PipelineOptions options{.segments = 1 + static_cast<int>(seed % 4),
                            .drafting = seed % 2 == 0 ? Drafting::Lookup : Drafting::SlowOracle,
                            .seed = seed};
    options.dispatch.batches_in_flight_max = 1 + static_cast<std::uint32_t>(seed % 3);
    options.dispatch.shape = static_cast<BatchShape>(seed / 2 % 2);
    add_exit(options, static_cast<Exit>(seed % kExits), random);
    Cluster cluster{options, {.poison_limit = 1000}};
    cluster.world.jump_max = Micros{1'000'000};
    cluster.world.channel_room = 1 + seed % 3;
    const std::vector<Order> expected = orders(seed);
    for (const Order& order : expected) {
        std::vector<TokenId> text = order.request.text;
        text.insert(text.end(), order.oracle.answer.begin(), order.oracle.answer.end());
        cluster.teach(std::move(text));
        if (!cluster.submit(order.request)) return false;
    }
    for (int round = 0; round < 5; ++round) {
        cluster.world.run_steps(static_cast<int>(random() % 150));
        const StageId victim = segment_id(1 + static_cast<int>(random() % 4) % options.segments);
        cluster.lose(victim);
        cluster.world.run_steps(static_cast<int>(random() % 30));
        cluster.rejoin(victim);
    }
    cluster.world.run_steps(100'000);
    if (cluster.world.failure || !cluster.all_ended() || !all_exact(cluster, expected)) {
        return false;
    }
    cluster.run_dry();
    return cluster.scheduler().pages().in_use() == 0 && cluster.world.tensors_all_free();
}

/// The seed whose try went wrong with this bug; nothing if all went well.
std::optional<std::uint64_t> noticed(PlantedBug bug, std::uint64_t tries) {
    for (std::uint64_t seed = 1; seed <= tries; ++seed) {
        std::cout.flush();  // or the child would say it again
        std::fflush(nullptr);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            if (std::freopen("/dev/null", "w", stdout) == nullptr ||
                std::freopen("/dev/null", "w", stderr) == nullptr) {
                _exit(0);
            }
            planted_bug.store(bug);
            // A failed REQUIRE throws, which ends the process: that counts as noticed, too.
            [&]() noexcept { _exit(survives(seed) ? 0 : 1); }();
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return seed;
    }
    return std::nullopt;
}

void check_safeguard(PlantedBug bug, const std::function<bool()>& works) {
    CAPTURE(static_cast<int>(bug));
    CHECK(works());
    planted_bug.store(bug);
    CHECK_FALSE(works());
    planted_bug.store(PlantedBug::None);
}

}  // namespace

TEST_CASE("a commit for a position that the log has passed is what the position check stops") {
    const auto commits_twice = [] {
        CommitLog log;
        const std::vector<TokenId> prompt{1, 2};
        msg::Verdict verdict{};
        verdict.route = {RequestId{1}, log.open(RequestId{1}, prompt).value(), Epoch{1}};
        verdict.base = 2;
        verdict.count = 1;
        return log.commit(verdict).kind == CommitKind::Counts &&
               log.commit(verdict).kind == CommitKind::Counts;
    };
    CHECK_FALSE(commits_twice());
    planted_bug.store(PlantedBug::CommitIgnoresPosition);
    CHECK(commits_twice());
    planted_bug.store(PlantedBug::None);
}

TEST_CASE("each safeguard that one message shows is missed when it is taken out") {
    check_safeguard(PlantedBug::FilterForgetsRunning, [] {
        AttemptFilter gate;
        gate.begun(RequestId{1}, Attempt{1});
        for (std::uint64_t id = 2; id < AttemptFilter::kOverMax + 4; ++id) {
            gate.begun(RequestId{id}, Attempt{1});
            gate.ended(RequestId{id});
        }
        return gate.age(RequestId{1}, Attempt{1}) == Age::Current;
    });
    check_safeguard(PlantedBug::VerdictUnchecked, [] {
        conductor_test::Bench bench;
        const RequestId id = bench.submit(conductor_test::request());
        bench.verdict(id, 1, 4, {conductor_test::kVocab});
        return bench.ears[0]->tokens.empty() && bench.context.faults.size() == 1;
    });
    check_safeguard(PlantedBug::EpochUnchecked, [] {
        DraftBench bench{plan_of({.gamma = 2}), with_lookup()};
        bench.begin(request_of(5));
        bench.deliver(kConductor, msg::Stop{{kRequest, Attempt{1}, Epoch{9}}});
        return bench.context.faults.size() == 1;
    });
    check_safeguard(PlantedBug::EndUntold, [] {
        conductor_test::Bench bench;
        const RequestId id = bench.submit(conductor_test::request());
        bench.verdict(id, 1, 4, {50}, FinishReason::EndToken);
        return bench.context.stops.size() == 3;
    });
    check_safeguard(PlantedBug::AloneOnceIsPoison, [] {
        conductor_test::Bench bench;
        bench.submit(conductor_test::request());
        bench.submit(conductor_test::request());
        for (int i = 0; i < 3; ++i) {
            bench.lose(conductor_test::kVerifier);
            bench.join(conductor_test::kVerifier);
        }
        return bench.ears[0]->ends == 0;
    });
    check_safeguard(PlantedBug::ProgressUnwatched, [] {
        conductor_test::Bench bench;
        bench.submit(conductor_test::request());
        for (int second = 0; second < 100; ++second) bench.context.pass(Micros{1'000'000});
        return bench.context.posted.size() == 6;
    });
    check_safeguard(PlantedBug::DraftToldFirst, [] {
        conductor_test::Bench bench;
        bench.submit(conductor_test::request());
        return bench.context.posted.back().to == conductor_test::kDraft;
    });
    check_safeguard(PlantedBug::PauseCountsAsWaiting, [] {
        conductor_test::Bench bench;
        bench.submit(conductor_test::request());
        bench.lose(conductor_test::kVerifier);
        bench.context.pass(Micros{3'600'000'000});
        bench.context.pass(Micros{2'000'000});
        return bench.ears[0]->ends == 0;
    });
    check_safeguard(PlantedBug::CancelUnseen, [] {
        conductor_test::Bench bench;
        AnswerOrder order = bench.order(conductor_test::request());
        order.cancelled = [] { return true; };
        bench.verdict(bench.conductor.submit(std::move(order)).value(), 1, 4, {50});
        return bench.ears[0]->tokens.empty();
    });
    check_safeguard(PlantedBug::RowTimeForgotten, [] {
        const JobLabel prefill{.name = "prefill", .rows = 512};
        return expected_time({}, prefill, Micros{2'000}) > Micros{10'000'000};
    });
    check_safeguard(PlantedBug::StopLost, [] {
        conductor_test::Bench bench;
        bench.context.full = {conductor_test::kDraft};
        bench.conductor.cancel(bench.submit(conductor_test::request()));
        bench.context.full.clear();
        bench.conductor.on_room(conductor_test::kDraft);
        return bench.context.stops.size() == 3;
    });
    check_safeguard(PlantedBug::MissedVerdictUntold, [] {
        DraftBench bench{plan_of({.gamma = 2}), with_lookup()};
        bench.begin(request_of(5));
        bench.text.push_back(1);
        bench.verdict({1});
        return bench.context.posted.size() == 1;
    });
}

TEST_CASE("a trial of a request that was stopped is cancelled") {
    check_safeguard(PlantedBug::TrialOutlivesRequest, [] {
        FakeBackend backend{0, kFakeLayers, 512};
        DraftTools tools;
        tools.model =
            std::make_unique<DraftModel>(backend, DraftModelOptions{.vocab_size = kFakeVocab,
                                                                    .skip = SkipSet{kFakeLayers},
                                                                    .whole_text = true});
        tools.search = SearchTrialOptions{
            .search = {.layers = kFakeLayers}, .window = 2, .optimise_share = 1.0};
        DraftBench bench{plan_of({.gamma = 2}), std::move(tools)};
        backend.on_run = [&bench] { bench.context.time += Micros{1'000}; };
        bench.begin(request_of(5));
        const auto trial_waits = [&bench] {
            return bench.context.jobs_waiting() > 0 && bench.context.labels.back().heads == 4;
        };
        for (int i = 0; i < 200 && !trial_waits(); ++i) {
            if (!bench.context.run_job()) bench.verdict({static_cast<TokenId>(i % 7)}, 1);
        }
        REQUIRE(trial_waits());
        const std::uint64_t before = bench.actor.trials();
        bench.deliver(kConductor, msg::Stop{.route = bench.route()});
        REQUIRE(bench.context.run_job());
        return bench.actor.trials() == before;
    });
}

TEST_CASE("rows behind a gap in the cache are what the look at the root keeps out") {
    check_safeguard(PlantedBug::RootGapIgnored, [] {
        ScriptedPool pool{4, kBatchRowsMax * kFakeDim * sizeof(float)};
        SegmentPlan plan;
        plan.count = 2;
        plan.previous = segment_id(1);
        plan.verifier = segment_id(2);
        plan.first_segment = segment_id(1);
        plan.verdict_to = {kConductor};
        FakeBackend backend{kFakeLayers / 2, kFakeLayers, 256};
        ProtocolScene<SegmentActor> last{segment_id(2), plan, backend};
        last.context.in = &pool.consumer;
        last.begin(scene_request());
        const PoolRef slot = pool.producer.acquire().value();
        pool.producer.publish(slot, kFakeDim * sizeof(float));
        msg::BatchPart part{};
        part.request = kSceneRequest;
        part.attempt = Attempt{1};
        part.kind = msg::BatchKind::Verify;
        part.rows = 1;
        msg::BatchRow row{};
        row.node = NodeId{1};
        row.parent = msg::kNoParent;
        row.token = scene_request().text.back();
        row.position = 2;
        msg::Batch batch{};
        batch.epoch = Epoch{1};
        batch.tensor = slot.index;
        batch.tensor_generation = slot.generation;
        batch.tensor_rows = 1;
        batch.parts = {part};
        batch.rows = {row};
        last.tell(segment_id(1), batch);
        return last.context.jobs_waiting() == 0;
    });
}

TEST_CASE("without a planted bug every try goes well") {
    CHECK_FALSE(noticed(PlantedBug::None, 150));
}

TEST_CASE("each safeguard of decoding across a recovery is missed when it is taken out") {
    const std::pair<const char*, PlantedBug> bugs[] = {
        {"CommitIgnoresAttempt", PlantedBug::CommitIgnoresAttempt},
        {"AttemptNotRaised", PlantedBug::AttemptNotRaised},
        {"ReplayForgetsCommitted", PlantedBug::ReplayForgetsCommitted},
        {"ReplayForgetsCount", PlantedBug::ReplayForgetsCount},
        {"FilterIgnoresAttempt", PlantedBug::FilterIgnoresAttempt},
        {"FilterDropsEarly", PlantedBug::FilterDropsEarly},
        {"StopIgnoresAttempt", PlantedBug::StopIgnoresAttempt},
        {"SlotsLeakOnReplay", PlantedBug::SlotsLeakOnReplay},
        {"TensorLeakOnStale", PlantedBug::TensorLeakOnStale},
        {"OutboxForgotten", PlantedBug::OutboxForgotten},
        {"MatcherNotRebuilt", PlantedBug::MatcherNotRebuilt},
        {"MaskBeforeBias", PlantedBug::MaskBeforeBias},
        {"GrammarNotResent", PlantedBug::GrammarNotResent},
        {"ForcedIsAccepted", PlantedBug::ForcedIsAccepted},
    };
    for (const auto& [name, bug] : bugs) {
        const std::optional<std::uint64_t> seed = noticed(bug, kTriesMax);
        CAPTURE(std::string{name});
        CHECK(seed.has_value());
        if (seed) MESSAGE(std::string{name}, " is noticed with seed ", *seed);
    }
}
