// The control side and the data side of a loop, step by step in one thread.
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/loop/loop_control.hpp"
#include "runtime/loop/loop_environment.hpp"
#include "runtime/loop/loop_frames.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};
constexpr Epoch kEpochB{3};

struct ScriptedPort : ControlPort {
    [[nodiscard]] Status send(Envelope, const control::Message&) override { return {}; }
    [[nodiscard]] Status poll(const Deliver& deliver) override {
        for (PortEvent& event : std::exchange(events, {})) deliver(std::move(event));
        return answer;
    }
    [[nodiscard]] Status report_fault(StageId peer, Epoch epoch, const Error& error) override {
        faults.push_back({peer, epoch, error.what});
        return {};
    }
    [[nodiscard]] Status wired(StageId, Epoch) override { return {}; }
    struct Fault {
        StageId peer;
        Epoch epoch;
        std::string what;
    };
    std::vector<PortEvent> events;
    std::vector<Fault> faults;
    Status answer;
};

/// Notes what it is told, in order.
struct Listener : Actor {
    void on_start(StageContext& c) override { context = &c; }
    void handle(StageId, std::uint16_t, std::span<const std::byte>) override { told += "frame "; }
    void on_control(StageId, const control::Message&) override { told += "control "; }
    void on_room(StageId) override { told += "room "; }
    void on_peer(StageId, PeerChange change) override {
        told += change == PeerChange::Lost ? "lost " : "joined ";
    }
    StageContext* context = nullptr;
    std::string told;
};

/// Process A, with a channel to and from B, and B's ends of them.
struct Scene {
    Scene() {
        host.add(kA, Epoch{1}, actor);
        host.start();
    }
    Push to_a() {
        const msg::Proposal message{};
        return b.out[0].ring.try_push(1, std::as_bytes(std::span{&message, 1}));
    }
    Push to_b() { return send(*actor.context, kB, msg::Proposal{}); }

    WiringPlan plan = wired_plan({{{kA, {kA}, 0}, Epoch{1}}, {{kB, {kB}, 0}, kEpochB}},
                                 {{kA, kB, 8, 2, 0, 0}, {kB, kA, 8, 2, 0, 0}});
    Wiring a = wiring_of(plan, kA, Epoch{1});
    Wiring b = wiring_of(plan, kB, kEpochB);
    ScriptedPort port;
    Listener actor;
    LoopTelemetry telemetry{*a.telemetry, Micros{0}, Micros{0}};
    EdgeLinks links{nullptr, a.bell, Micros{0}};
    StageEdges edges{a};
    LoopEnvironment environment{host, edges, frames, telemetry, port, nullptr};
    ActorHost host{environment, ActorHost::Channels::OnDemand};
    LoopControl control{port, a.bell, kA, Micros{1'000'000}, edges, links, telemetry, host};
    LoopFrames frames{edges, telemetry, host, control, 4};
};

}  // namespace

TEST_CASE("a peer that is reported lost twice is lost once, and what is sent to it is dropped") {
    Scene scene;
    scene.port.events.emplace_back(PeersLost{{kB}});
    scene.port.events.emplace_back(PeersLost{{kB}});
    CHECK(scene.control.poll());
    CHECK(scene.actor.told == "lost ");
    CHECK(scene.to_b() == Push::Ok);
    CHECK_FALSE(scene.b.in[0].ring.has_frame());
}

TEST_CASE("a control message for an address that is not hosted goes to the process's own actor") {
    Scene scene;
    scene.port.events.emplace_back(
        PortMail{{.from = kConductor, .to = StageId{9}}, control::Begin{}});
    CHECK(scene.control.poll());
    CHECK(scene.actor.told == "control ");
}

TEST_CASE("Shutdown ends a loop well if it comes from the conductor, and is a message otherwise") {
    Scene scene;
    scene.port.events.emplace_back(PortMail{{.from = kB, .to = kA}, control::Shutdown{}});
    CHECK(scene.control.poll());
    CHECK_FALSE(scene.host.ended());
    scene.port.events.emplace_back(PortMail{{.from = kConductor, .to = kA}, control::Shutdown{}});
    CHECK(scene.control.poll());
    CHECK(scene.host.ended());
    CHECK(scene.host.outcome().ok());
}

TEST_CASE("an error of the port ends the loop with that error") {
    Scene scene;
    scene.port.answer = Error{Errc::PeerGone, "the conductor is gone"};
    CHECK_FALSE(scene.control.poll());
    REQUIRE(scene.host.ended());
    CHECK(scene.host.outcome().error().code == Errc::PeerGone);
}

TEST_CASE("of several faults of a peer the first is reported, with the epoch that it was lost in") {
    Scene scene;
    scene.edges.faults().add("from", kB, {Errc::Protocol, "first"});
    scene.edges.faults().add("to", kB, {Errc::Protocol, "second"});
    CHECK(scene.control.lose_faulty());
    REQUIRE(scene.port.faults.size() == 1);
    CHECK(scene.port.faults[0].epoch == kEpochB);
    CHECK(scene.port.faults[0].what == "channel from stage 2: first");
    CHECK(scene.actor.told == "lost ");
    CHECK_FALSE(scene.control.lose_faulty());
}

TEST_CASE("a frame is handled after the control message that was announced before it") {
    Scene scene;
    scene.port.events.emplace_back(PortMail{{.from = kConductor, .to = kA}, control::Begin{}});
    scene.a.bell.announce();
    REQUIRE(scene.to_a() == Push::Ok);
    CHECK(scene.frames.receive());
    CHECK(scene.actor.told == "control ");
    CHECK(scene.frames.receive());
    CHECK(scene.actor.told == "control frame ");
    CHECK_FALSE(scene.frames.receive());
}

TEST_CASE("one call reads at most a burst of a ring's frames") {
    Scene scene;
    for (int i = 0; i < 6; ++i) REQUIRE(scene.to_a() == Push::Ok);
    CHECK(scene.frames.receive());
    CHECK(scene.actor.told == "frame frame frame frame ");
    CHECK(scene.frames.can_go_on());
    CHECK(scene.frames.receive());
    CHECK_FALSE(scene.frames.can_go_on());
}

TEST_CASE("no further frame is read of a peer that has broken a channel") {
    Scene scene;
    REQUIRE(scene.to_a() == Push::Ok);
    scene.edges.faults().add("to", kB, {Errc::Protocol, "broken"});
    CHECK_FALSE(scene.frames.receive());
    CHECK(scene.actor.told.empty());
}

TEST_CASE("an actor that met a full ring is told of room when its peer has read, once") {
    Scene scene;
    while (scene.to_b() == Push::Ok) continue;
    CHECK_FALSE(scene.frames.call_rooms());
    CHECK_FALSE(scene.frames.can_go_on());
    std::vector<std::byte> buffer(scene.b.in[0].ring.payload_bytes());
    REQUIRE(scene.b.in[0].ring.try_pop(buffer).outcome == Pop::Frame);
    CHECK(scene.frames.can_go_on());
    CHECK(scene.frames.call_rooms());
    CHECK(scene.actor.told == "room ");
    CHECK_FALSE(scene.frames.call_rooms());
}
