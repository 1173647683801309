// Bugs that the simulation has found, each reduced to a small scenario.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/attempt_filter.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "tests/sim/random_timing.hpp"
#include "tests/support/toy/toy_pipeline.hpp"

namespace paceline::testing {
namespace {

TEST_CASE("a stage that was started again may begin an older request after a newer one") {
    AttemptFilter gate;
    gate.begun(RequestId{3}, Attempt{1});
    // Request 2 ran before this incarnation lived; now its next turn comes.
    CHECK(gate.is_news(RequestId{2}, Attempt{4}));
    const msg::Route route{RequestId{2}, Attempt{4}, Epoch{1}};
    CHECK(gate.admit(StageId{1}, 2, route, {}).value() == Age::Early);
    gate.begun(RequestId{2}, Attempt{4});
    CHECK(gate.take_due().size() == 1);
    CHECK(gate.admit(StageId{1}, 2, route, {}).value() == Age::Current);
}

struct ToyProcess final : SimBody {
    explicit ToyProcess(ToyActor made) : toy{std::move(made)} {}
    [[nodiscard]] Actor& actor(StageId /*id*/) override { return *toy.actor; }
    ToyActor toy;
};

/// A conductor and `segments` of the toy target, whose cache holds one context.
struct Chain {
    Chain(int segments, std::uint64_t seed)
        : plan{.segments = segments, .kv_slots = 160},
          conductor{toy_conductor_plan(plan), kFakeVocab, plan.kv_slots},
          world{options(seed), timing, processes(), toy_edges(plan)} {
        world.start(conductor);
    }
    static SimOptions options(std::uint64_t seed) {
        SimOptions made;
        made.seed = seed;
        return made;
    }
    [[nodiscard]] std::vector<SimProcessSpec> processes() const {
        std::vector<SimProcessSpec> made;
        for (const StageId id : toy_actors(plan)) {
            made.push_back({.process = {.id = id,
                                        .actors = {id},
                                        .name = "segment-" + std::to_string(id.value),
                                        .on_death = OnDeath::RebuildChain},
                            .make = [this, id] {
                                return std::make_unique<ToyProcess>(make_toy_actor(plan, id));
                            }});
        }
        return made;
    }
    /// Asks for ten tokens after those of `before`, stops after `tokens` of them, and goes on with
    /// `then`.
    void ask(std::uint64_t text,
             std::optional<RequestId> before,
             int tokens,
             std::function<void()> then = {}) {
        AnswerOrder order;
        order.request = toy_request(text, 10);
        order.request.text.resize(std::min<std::size_t>(order.request.text.size(), 30));
        if (before) {
            const auto so_far = conductor.text(*before);
            order.request.text.insert(order.request.text.begin(), so_far.begin(), so_far.end());
        }
        order.on_token = [left = tokens](TokenId) mutable {
            return --left == 0 ? Go::Stop : Go::On;
        };
        order.on_end = [this, then](const AnswerStats&, const Status& status) {
            CHECK(status.ok());
            ++ended;
            if (then) world.call_at(world.now(), then);
        };
        REQUIRE(conductor.submit(std::move(order)).ok());
    }
    void run_until_ended(int answers) {
        CHECK(world.run([&] { return ended == answers; }, SimTime{100'000'000'000}));
        CHECK_MESSAGE(!world.violation(), world.violation().value_or(""));
    }

    ToyPlan plan;
    RandomTiming timing{{}};
    ConductorActor conductor;
    SimWorld world;
    int ended = 0;
};

constexpr int kWhole = 100;

TEST_CASE("a request that is stopped and continued at once comes to its end beside another") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Chain chain{static_cast<int>(1 + seed % 3), seed};
        chain.world.call_at(SimTime{0}, [&] {
            chain.ask(seed, {}, static_cast<int>(1 + seed % 4),
                      [&] { chain.ask(seed + 2, RequestId{1}, kWhole); });
            chain.ask(seed + 1, {}, kWhole);
        });
        chain.run_until_ended(3);
    }
}

TEST_CASE("a turn that is cancelled while its lost cache is computed anew can be continued") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Chain chain{3, seed};
        SimRandom random{seed};
        const SimTime patience = random.log_uniform(SimTime{50'000}, SimTime{50'000'000});
        const RequestId first{1};
        const auto last_turn = [&] { chain.ask(seed + 3, first, kWhole); };
        const auto second_turn = [&] {
            chain.ask(seed + 2, first, kWhole, last_turn);
            chain.world.call_at(chain.world.now() + patience, [&] {
                if (chain.ended == 2) chain.conductor.cancel(RequestId{3});
            });
        };
        chain.world.call_at(SimTime{0}, [&] {
            // The second request takes the pages of the first.
            chain.ask(seed, {}, kWhole, [&] { chain.ask(seed + 1, {}, kWhole, second_turn); });
        });
        chain.run_until_ended(4);
    }
}

}  // namespace
}  // namespace paceline::testing
