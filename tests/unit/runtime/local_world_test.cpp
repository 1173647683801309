#include "tests/support/local_world.hpp"

#include <doctest/doctest.h>

#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

EdgeSpec edge(StageId from, StageId to, std::uint32_t tensors = 0) {
    return {from, to, 8, 2, tensors, tensors == 0 ? 0U : 64U};
}

struct Pipeline {
    explicit Pipeline(int count, LocalWorld::Clock clock = LocalWorld::Clock::Virtual)
        : world{clock}, source{kA, count} {
        world.add(kConductor, source);
        world.add(kA, a);
        world.add(kB, b);
        world.connect(edge(kConductor, kA));
        world.connect(edge(kA, kB, 2));
        world.connect(edge(kB, kConductor));
    }
    LocalWorld world;
    Source source;
    Relay a{kB};
    Relay b{kConductor};
};

}  // namespace

TEST_CASE("a pipeline in one process delivers everything, in order, through bounded channels") {
    Pipeline pipeline{500};
    REQUIRE(pipeline.world.run().ok());
    REQUIRE(pipeline.source.answers.size() == 500);
    for (int i = 0; i < 500; ++i)
        CHECK(pipeline.source.answers[static_cast<std::size_t>(i)] == i + 1002);
    CHECK(pipeline.source.rooms > 0);  // the channel of 8 was full, and told when it was not
    CHECK(pipeline.b.jobs == 500);
}

TEST_CASE("control messages reach the actor they are for") {
    Pipeline pipeline{1};
    pipeline.world.post(kConductor, kB, control::Begin{});
    pipeline.world.post(kConductor, kA, control::Begin{});
    REQUIRE(pipeline.world.run().ok());
    CHECK(pipeline.a.begins == 1);
    CHECK(pipeline.b.begins == 1);
}

TEST_CASE("in virtual time timers fire in order of time, without waiting for it") {
    struct Sleeper : Source {
        Sleeper() : Source{kA, 0} {}
        void on_start(StageContext& context) override {
            Source::on_start(context);
            context.schedule(2h, [&] { order.push_back(context.now()); });
            context.schedule(1h, [&] {
                order.push_back(context.now());
                context.schedule(0us, [&] { order.push_back(context.now()); });
            });
        }
        std::vector<Micros> order;
    } sleeper;
    LocalWorld world{LocalWorld::Clock::Virtual};
    world.add(kA, sleeper);
    REQUIRE(world.run().ok());  // ends when nothing can happen any more
    CHECK(sleeper.order == std::vector<Micros>{1h, 1h, 2h});
}

TEST_CASE("an actor that fails ends the run with its error") {
    struct Failing : Source {
        Failing() : Source{kA, 0} {}
        void on_start(StageContext& context) override {
            context.fail({Errc::Protocol, "the first reason"});
            context.fail({Errc::System, "a later one"});
        }
    } failing;
    LocalWorld world;
    world.add(kA, failing);
    const Status status = world.run();
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().what == "the first reason");
}

TEST_CASE("a run can be given up") {
    Source silent{kB, 0};
    LocalWorld world{LocalWorld::Clock::Real};
    world.add(kA, silent);
    int looks = 0;
    const Status status = world.run([&] { return ++looks == 3; });
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Errc::Cancelled);
}
