// The effect of a request or a stage that fails repeatedly on the others, in a simulated world:
// the real actors, conductor and rules of recovery.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/conductor_actor.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "tests/sim/random_timing.hpp"
#include "tests/support/toy/toy_frail.hpp"
#include "tests/support/toy/toy_pipeline.hpp"

namespace paceline::testing {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};
/// A request whose text begins with it kills the last segment soon after its Begin.
constexpr TokenId kPoison = kFakeVocab - 1;

bool is_poison(const Request& request) {
    return request.text.front() == kPoison;
}

struct ToyProcess final : SimBody {
    ToyProcess(ToyActor made, std::function<void()> strike)
        : toy{std::move(made)}, frail{*toy.actor, is_poison, std::move(strike)} {}
    [[nodiscard]] Actor& actor(StageId /*id*/) override { return frail; }
    ToyActor toy;
    FrailActor frail;
};

/// Every incarnation loads for so long.
RandomTimingLimits loading_for(SimTime time) {
    RandomTimingLimits limits;
    limits.load_min = time;
    limits.load_max = time;
    return limits;
}

/// What became of one request.
struct Ending {
    std::size_t tokens = 0;
    bool over = false;
    Status status;
};

/// Two segments, perhaps a draft, and room for eight requests.
struct Pipeline {
    Pipeline(SimTiming& timing, std::uint64_t seed, ToyDraft draft = ToyDraft::None)
        : plan{.segments = 2, .draft = draft, .kv_slots = 8 * 160},
          conductor{toy_conductor_plan(plan), kFakeVocab, plan.kv_slots},
          world{options(seed), timing, processes(), toy_edges(plan)} {
        world.start(conductor);
    }
    static SimOptions options(std::uint64_t seed) {
        SimOptions made;
        made.seed = seed;
        return made;
    }
    [[nodiscard]] std::vector<SimProcessSpec> processes() {
        std::vector<SimProcessSpec> made;
        for (const StageId id : toy_actors(plan)) {
            const bool disposable = id == toy_draft(plan);
            made.push_back({.process = {.id = id,
                                        .actors = {id},
                                        .name = toy_name(plan, id),
                                        .on_death = disposable ? OnDeath::RestartAlone
                                                               : OnDeath::RebuildChain},
                            .make = [this, id] {
                                return std::make_unique<ToyProcess>(make_toy_actor(plan, id),
                                                                    [this, id] { poisoned(id); });
                            }});
        }
        return made;
    }
    void poisoned(StageId id) {
        if (id != toy_segment(2)) return;
        crash(id, world.now() + kMilli / 5);
    }
    void crash(StageId id, SimTime at) {
        world.faults().add({SimFault{.at = at, .kind = SimFaultKind::Crash, .process = id}});
    }
    /// The request of a seed, with all of its tokens checked.
    Ending& ask(std::uint64_t seed, bool poison = false) {
        endings.push_back(std::make_unique<Ending>());
        Ending* ending = endings.back().get();
        AnswerOrder order;
        order.request = toy_request(seed, 10);
        order.request.text.resize(std::min<std::size_t>(order.request.text.size(), 30));
        order.request.text.front() = poison ? kPoison : 1;
        order.on_token = [ending, expected = toy_answer(order.request)](TokenId token) {
            CHECK(expected.at(ending->tokens++) == token);
            return Go::On;
        };
        order.on_end = [ending](const AnswerStats&, const Status& status) {
            ending->over = true;
            ending->status = status;
        };
        REQUIRE(conductor.submit(std::move(order)).ok());
        return *ending;
    }
    [[nodiscard]] bool all_over() const {
        return std::all_of(endings.begin(), endings.end(),
                           [](const auto& ending) { return ending->over; });
    }
    void run_until_over(SimTime limit = 1'000 * kSecond) {
        const bool over = world.run([this] { return !endings.empty() && all_over(); }, limit);
        CHECK_MESSAGE(!world.violation(), world.violation().value_or(""));
        CHECK_MESSAGE(!world.gave_up(), (world.gave_up() ? world.gave_up()->what : ""));
        CHECK(over);
    }

    ToyPlan plan;
    ConductorActor conductor;
    SimWorld world;
    std::vector<std::unique_ptr<Ending>> endings;
};

/// Whether the ending is that of a request that was given up as poison, by name.
bool names_poison(const Ending& ending, const std::string& request) {
    return ending.over && !ending.status.ok() &&
           ending.status.error().what.find(request + " is ended") == 0;
}

TEST_CASE("one poison request among five is given up by name, and the four others are answered") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        RandomTiming timing{{}};
        Pipeline pipeline{timing, seed};
        const std::size_t poison = seed % 5;
        pipeline.world.call_at(SimTime{0}, [&] {
            for (std::size_t i = 0; i < 5; ++i) pipeline.ask(seed + i, i == poison);
        });
        pipeline.run_until_over();
        for (std::size_t i = 0; i < 5; ++i) {
            CAPTURE(i);
            const Ending& ending = *pipeline.endings[i];
            if (i == poison) {
                CHECK(names_poison(ending, "request " + std::to_string(i + 1)));
            } else {
                CHECK_MESSAGE(ending.status.ok(),
                              (ending.status.ok() ? "" : ending.status.error().what));
            }
        }
    }
}

TEST_CASE("two poison requests among six are each given up, and the four others are answered") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        RandomTiming timing{{}};
        Pipeline pipeline{timing, seed};
        const std::set<std::size_t> poison{seed % 6, (seed % 6 + 1 + seed % 5) % 6};
        pipeline.world.call_at(SimTime{0}, [&] {
            for (std::size_t i = 0; i < 6; ++i) pipeline.ask(seed + i, poison.contains(i));
        });
        pipeline.run_until_over();
        for (std::size_t i = 0; i < 6; ++i) {
            CAPTURE(i);
            CHECK(pipeline.endings[i]->status.ok() == !poison.contains(i));
        }
    }
}

TEST_CASE("a client that asks a poison request again and again does not end the run") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        RandomTiming timing{{}};
        Pipeline pipeline{timing, seed};
        for (int turn = 0; turn < 8; ++turn) {
            pipeline.world.call_at(pipeline.world.now(), [&] {
                pipeline.ask(seed, true);
                pipeline.ask(seed + 1);
                pipeline.ask(seed + 2);
            });
            pipeline.run_until_over(pipeline.world.now() + 1'000 * kSecond);
        }
        for (std::size_t i = 0; i < pipeline.endings.size(); ++i) {
            CAPTURE(i);
            CHECK(pipeline.endings[i]->status.ok() == (i % 3 != 0));
        }
    }
}

/// It dies as soon as it is at work, each time.
void die_at_once(Pipeline& pipeline, StageId id) {
    pipeline.world.call_at(pipeline.world.now() + kMilli, [&pipeline, id] {
        if (pipeline.world.supervisor().health_of(id) == StageHealth::Up) {
            pipeline.crash(id, pipeline.world.now());
        }
        if (pipeline.world.supervisor().health_of(id) != StageHealth::Disabled)
            die_at_once(pipeline, id);
    });
}

TEST_CASE("an essential stage that loads slowly and dies at once ends the run with its failures") {
    for (const int seconds : {1, 5, 30, 90}) {
        CAPTURE(seconds);
        RandomTiming timing{loading_for(seconds * kSecond)};
        Pipeline pipeline{timing, 1};
        die_at_once(pipeline, toy_segment(2));
        (void)pipeline.world.run([] { return false; }, 3'600 * kSecond);
        REQUIRE(pipeline.world.gave_up());
        CHECK(pipeline.world.gave_up()->what.find("stage 'segment-2' died 6 times") == 0);
    }
}

TEST_CASE("a draft that loads slowly and dies at once is left out") {
    for (const int seconds : {5, 30, 90}) {
        CAPTURE(seconds);
        RandomTiming timing{loading_for(seconds * kSecond)};
        Pipeline pipeline{timing, 1, ToyDraft::Lookup};
        die_at_once(pipeline, toy_segment(3));
        CHECK_FALSE(pipeline.world.run([] { return false; }, 3'600 * kSecond));
        CHECK(pipeline.world.supervisor().health_of(toy_segment(3)) == StageHealth::Disabled);
        CHECK_FALSE(pipeline.world.gave_up());
    }
}

TEST_CASE("a stage whose next incarnation never finishes loading ends the run") {
    RandomTiming timing{loading_for(100'000 * kSecond)};
    Pipeline pipeline{timing, 1};
    pipeline.crash(toy_segment(2), kMilli);
    (void)pipeline.world.run([] { return false; }, 3'600 * kSecond);
    REQUIRE(pipeline.world.gave_up());
    CHECK(pipeline.world.gave_up()->what.find("did not come back within") != std::string::npos);
}

TEST_CASE("a request waits for a stage that loads as long as it may") {
    for (const int seconds : {5, 30, 90, 119}) {
        CAPTURE(seconds);
        RandomTiming timing{loading_for(seconds * kSecond)};
        Pipeline pipeline{timing, 1};
        pipeline.crash(toy_segment(2), kMilli);
        pipeline.world.call_at(SimTime{0}, [&] { pipeline.ask(1); });
        pipeline.world.call_at(10 * kMilli, [&] { pipeline.ask(2); });
        pipeline.run_until_over();
        for (const auto& ending : pipeline.endings) {
            CHECK_MESSAGE(ending->status.ok(),
                          (ending->status.ok() ? "" : ending->status.error().what));
        }
    }
}

TEST_CASE("an hour of standing still while a stage loads costs neither that stage nor a request") {
    for (const int seconds : {5, 30, 119}) {
        CAPTURE(seconds);
        RandomTiming timing{loading_for(seconds * kSecond)};
        Pipeline pipeline{timing, 1};
        pipeline.crash(toy_segment(2), kMilli);
        pipeline.world.call_at(SimTime{0}, [&] { pipeline.ask(1); });
        pipeline.world.call_at(2 * kSecond, [&] { pipeline.world.suspend(3'600 * kSecond); });
        pipeline.run_until_over(10'000 * kSecond);
        CHECK_MESSAGE(
            pipeline.endings[0]->status.ok(),
            (pipeline.endings[0]->status.ok() ? "" : pipeline.endings[0]->status.error().what));
        CHECK(pipeline.world.stages().incarnations().size() == 1 + 2 + 1);
        // What had loaded for two seconds by then loads for the rest of its time.
        CHECK(pipeline.world.now() > (3'600 + seconds) * kSecond);
    }
}

TEST_CASE("a stage that works for ten minutes between two deaths is restarted for ever") {
    RandomTiming timing{loading_for(90 * kSecond)};
    Pipeline pipeline{timing, 1};
    for (int i = 1; i <= 100; ++i) pipeline.crash(toy_segment(2), 700 * i * kSecond);
    CHECK_FALSE(pipeline.world.run([] { return false; }, 71'000 * kSecond));
    CHECK_FALSE(pipeline.world.gave_up());
    CHECK(pipeline.world.supervisor().all_up());
}

}  // namespace
}  // namespace paceline::testing
