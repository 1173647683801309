// Two and three loops as threads, on the same rings that processes use.
#include <thread>

#include <doctest/doctest.h>

#include "runtime/stage_loop.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

/// A port whose messages come from the test.
struct TestPort : ControlPort {
    [[nodiscard]] Status send(StageId to, const control::Message&) override {
        sent_to.push_back(to);
        return {};
    }
    [[nodiscard]] Status poll(const Deliver& deliver) override {
        ++polls;
        if (gone.load()) return Error{Errc::PeerGone, "the conductor is gone"};
        if (begin_ready.exchange(false)) deliver(kConductor, control::Begin{});
        if (shutdown.load()) deliver(kConductor, control::Shutdown{});
        return {};
    }
    std::vector<StageId> sent_to;
    std::atomic<int> polls{0};
    std::atomic<bool> gone{false};
    std::atomic<bool> shutdown{false};
    std::atomic<bool> begin_ready{false};
};

WiringPlan plan_of(std::uint32_t spin, std::uint32_t tensors) {
    const std::vector<StageSpec> stages{
        {kConductor, Epoch{1}, 0}, {kA, Epoch{1}, spin}, {kB, Epoch{3}, spin}};
    const std::vector<EdgeSpec> edges{{kConductor, kA, 8, 2, 0, 0},
                                      {kA, kB, 8, 2, tensors, tensors == 0 ? 0U : 64U},
                                      {kB, kConductor, 8, 2, 0, 0}};
    return WiringPlan::create(stages, edges).value();
}

}  // namespace

TEST_CASE("three loops pass everything on, in order, through rings that are often full") {
    std::uint32_t spin = 0;
    SUBCASE("sleeping") {
        spin = 0;
    }
    SUBCASE("spinning") {
        spin = 20;
    }
    const WiringPlan plan = plan_of(spin, 2);
    TestPort port_a;
    TestPort port_b;
    TestPort port_c;
    Relay a{kB};
    Relay b{kConductor};
    Source source{kA, 2000};
    StageLoop loop_a{plan.attach(kA).value(), port_a, {}};
    StageLoop loop_b{plan.attach(kB).value(), port_b, {}};
    StageLoop loop_c{plan.attach(kConductor).value(), port_c, {}};
    loop_a.add(kA, a);
    loop_b.add(kB, b);
    loop_c.add(kConductor, source);
    std::thread thread_a{[&] { CHECK(loop_a.run().ok()); }};
    std::thread thread_b{[&] { CHECK(loop_b.run().ok()); }};
    CHECK(loop_c.run().ok());
    port_a.shutdown = true;
    port_b.shutdown = true;
    thread_a.join();
    thread_b.join();
    REQUIRE(source.answers.size() == 2000);
    for (int i = 0; i < 2000; ++i) REQUIRE(source.answers[static_cast<std::size_t>(i)] == i + 1002);
    CHECK(loop_b.counters().frames_in == 2000);
    CHECK(loop_b.counters().frames_out == 2000);
    CHECK(loop_b.counters().jobs == 2000);
    CHECK(source.rooms > 0);
}

TEST_CASE("a loop whose conductor is gone ends by itself, although nobody rings") {
    const WiringPlan plan = plan_of(0, 0);
    TestPort port;
    Relay actor{kB};
    StageLoop loop{plan.attach(kA).value(), port, {.poll_limit = Micros{5000}, .burst = 16}};
    loop.add(kA, actor);
    std::thread thread{[&] {
        const Status status = loop.run();
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().code == Errc::PeerGone);
    }};
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    port.gone = true;
    thread.join();
    CHECK(port.polls > 2);
}

TEST_CASE("an announced control message is handled before a frame that came after it") {
    const WiringPlan plan = plan_of(0, 0);
    TestPort port;
    struct Checker : Relay {
        Checker() : Relay{kB} {}
        void on_start(StageContext& context) override { stage = &context; }
        void handle(StageId, std::uint16_t, std::span<const std::byte>) override {
            begins_at_frame = begins;
            stage->stop();
        }
        StageContext* stage = nullptr;
        int begins_at_frame = -1;
    } actor;
    // A poll interval too long to matter: only the announcement can bring the message in time.
    StageLoop loop{plan.attach(kA).value(), port, {.poll_limit = Micros{100'000}, .burst = 16}};
    loop.add(kA, actor);
    std::thread conductor{[&] {
        while (port.polls == 0) std::this_thread::yield();
        Wiring own = plan.attach(kConductor).value();
        port.begin_ready = true;
        Doorbell bell = plan.bell_of(kA).value();
        bell.announce();
        const msg::Proposal proposal{};
        CHECK(own.out[0].ring.try_push(1, std::as_bytes(std::span{&proposal, 1})) == Push::Ok);
        own.out[0].bell.ring();
    }};
    CHECK(loop.run().ok());
    conductor.join();
    CHECK(actor.begins_at_frame == 1);
}

TEST_CASE("a corrupt channel ends the loop with an error that names the peer") {
    const WiringPlan plan = plan_of(0, 0);
    const WiringPlan::Letter letter = plan.letter_for(kA);
    const ShmRegion ring =
        ShmRegion::attach(letter.files[letter.wire.edges[0].ring_file], sizeof(RingHeader)).value();
    reinterpret_cast<RingHeader*>(ring.bytes().data())->head.store(1'000'000);
    TestPort port;
    Relay actor{kB};
    StageLoop loop{plan.attach(kA).value(), port, {}};
    loop.add(kA, actor);
    const Status status = loop.run();
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Errc::Protocol);
    CHECK(status.error().what.find("channel from stage 0") == 0);
}
