// Edges whose tensors lie on a device: opening, order, what is sent and received, and how they end.
#include <algorithm>
#include <chrono>
#include <fmt/core.h>

#include "tests/unit/runtime/device_edges_scene.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

std::vector<Position> numbers(Position first, Position count) {
    std::vector<Position> all;
    for (Position i = 0; i < count; ++i) all.push_back(first + i);
    return all;
}

bool has(const std::string& text, std::string_view part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE(text);
    return found;
}

bool all_on_device(const std::vector<MemoryPlace>& places) {
    return std::count(places.begin(), places.end(), MemoryPlace::Device) ==
           static_cast<std::ptrdiff_t>(places.size());
}

std::uint64_t counted(const StageTelemetryView& telemetry, Counter counter) {
    return telemetry.snapshot().counters[static_cast<std::size_t>(counter)];
}

}  // namespace

TEST_CASE("tensors travel over a link in order, every one is sent and received once") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        CAPTURE(name_of(transport));
        DeviceEdgesScene scene{transport};
        scene.start();
        scene.relay();
        std::vector<Position> seen;
        for (Position i = 0; i < 300; ++i) {
            scene.ask(i);
            for (const Position number : scene.answers()) seen.push_back(number);
        }
        (void)soon([&] {
            for (const Position number : scene.answers()) seen.push_back(number);
            return seen.size() == 300;
        });
        scene.end();
        CHECK(scene.ended_a.ok());
        CHECK(scene.ended_b.ok());
        CHECK(seen == numbers(0, 300));
        CHECK(all_on_device(scene.sender.places));
        CHECK(all_on_device(scene.reader.places));
        CHECK(scene.device_a.counts().sent == 300);
        CHECK(scene.device_b.counts().expected == 300);
        CHECK(scene.device_b.counts().mismatches == 0);
        CHECK(scene.device_a.counts().links == 0);
        CHECK(scene.device_b.counts().links == 0);
    }
}

TEST_CASE("an edge has no free slot until its link is open; then its producer is told") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.device_a.may().may_open = false;
    scene.start();
    scene.ask(1);
    std::this_thread::sleep_for(30ms);
    CHECK(scene.answers().empty());  // no offer came
    scene.relay();
    std::this_thread::sleep_for(30ms);
    CHECK(scene.answers().empty());  // it is not open
    scene.device_a.may().may_open = true;
    scene.nudge();
    CHECK(scene.await_answers(1) == numbers(1, 1));
    scene.end();
    CHECK(scene.sender.rooms > 0);
    CHECK(scene.ended_a.ok());
    CHECK(scene.ended_b.ok());
}

TEST_CASE("a frame waits for its consumer's end to open, although the producer's was first") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.device_b.may().may_open = false;
    scene.start();
    scene.relay();
    scene.ask(1);
    REQUIRE(soon([&] { return scene.device_a.counts().sent == 1; }));
    std::this_thread::sleep_for(30ms);
    CHECK(scene.device_b.counts().expected == 0);
    CHECK(scene.answers().empty());
    scene.device_b.may().may_open = true;
    scene.nudge();
    CHECK(scene.await_answers(1) == numbers(1, 1));
    scene.end();
    CHECK(scene.port_b.said_faults().empty());
}

TEST_CASE("an offer of another incarnation and a second one change nothing") {
    DeviceEdgesScene scene{Transport::Exported};
    scene.start();
    scene.relay(Epoch{kEpochB.value - 1});
    scene.relay(Epoch{kEpochB.value + 1});
    scene.ask(1);
    std::this_thread::sleep_for(30ms);
    CHECK(scene.device_a.counts().opened_out == 0);
    scene.relay();
    CHECK(scene.await_answers(1) == numbers(1, 1));
    scene.relay();
    scene.ask(2);
    CHECK(scene.await_answers(1) == numbers(2, 1));
    scene.end();
    CHECK(scene.device_a.counts().opened_out == 1);
    CHECK(scene.ended_a.ok());
}

TEST_CASE(
    "frames behind a tensor that has not arrived wait; all else goes on, and the loop sleeps") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.device_b.may().may_arrive = false;
    scene.start();
    scene.relay();
    scene.ask(1);
    scene.ask(2);
    REQUIRE(soon([&] { return scene.device_b.counts().expected == 1; }));
    const std::uint64_t frames = counted(*scene.telemetry_b, Counter::FramesIn);
    const std::uint64_t sleeps = counted(*scene.telemetry_b, Counter::Sleeps);
    const int polls = scene.port_b.polls;
    const auto begin = std::chrono::steady_clock::now();
    scene.push(kB, -1);
    scene.push(kB, -1);
    CHECK(soon([&] { return counted(*scene.telemetry_b, Counter::FramesIn) == frames + 2; }));
    std::this_thread::sleep_for(200ms);
    CHECK(scene.answers().empty());
    CHECK(soon([&] { return counted(*scene.telemetry_b, Counter::Sleeps) > sleeps; }));
    // Every 20 ms, or when something was said; however long this took.
    const int more = scene.port_b.polls - polls;
    CHECK(more < 50 + (std::chrono::steady_clock::now() - begin) / 5ms);
    CHECK(scene.device_b.counts().expected == 1);
    scene.device_b.may().may_arrive = true;
    scene.nudge();
    CHECK(scene.await_answers(2) == numbers(1, 2));
    scene.end();
    CHECK(scene.ended_b.ok());
}

TEST_CASE("a published slot that no message names is neither sent nor expected, the others are") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.sender.unsaid = 5;
    scene.start();
    scene.relay();
    for (Position i = 0; i < 20; ++i) scene.ask(i);
    std::vector<Position> wanted = numbers(0, 20);
    wanted.erase(wanted.begin() + 5);
    CHECK(scene.await_answers(19) == wanted);
    scene.end();
    CHECK(scene.device_a.counts().sent == 19);
    CHECK(scene.device_b.counts().expected == 19);
    CHECK(scene.device_b.counts().mismatches == 0);
}

TEST_CASE("a slot that the link still reads is not given out again") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.start();
    scene.relay();
    scene.ask(1);
    REQUIRE(scene.await_answers(1) == numbers(1, 1));
    scene.device_a.may().may_reuse = false;
    scene.ask(2);
    std::this_thread::sleep_for(30ms);
    CHECK(scene.answers().empty());
    scene.device_a.may().may_reuse = true;
    scene.nudge();
    CHECK(scene.await_answers(1) == numbers(2, 1));
}

TEST_CASE(
    "a link that cannot be opened ends its stage, with transport, both stages and operation") {
    SUBCASE("at the consumer") {
        DeviceEdgesScene scene{Transport::Exported};
        scene.device_b.may().opening_fails = true;
        scene.start();
        scene.thread_b.join();
        REQUIRE_FALSE(scene.ended_b.ok());
        CHECK(has(scene.ended_b.error().what,
                  "transport exported of early -> final: opening the "
                  "consumer's end: fake device"));
    }
    SUBCASE("at the producer") {
        DeviceEdgesScene scene{Transport::Nccl};
        scene.device_a.may().opening_fails = true;
        scene.start();
        scene.relay();
        scene.thread_a.join();
        REQUIRE_FALSE(scene.ended_a.ok());
        CHECK(has(scene.ended_a.error().what,
                  "transport nccl of early -> final: opening the producer's end: fake device"));
    }
    SUBCASE("an offer that is none") {
        DeviceEdgesScene scene{Transport::Nccl};
        scene.start();
        scene.port_a.say(LinkOffered{kA, kB, kEpochB, {}}, scene.plan.bell_of(kA).value());
        scene.thread_a.join();
        REQUIRE_FALSE(scene.ended_a.ok());
        CHECK(scene.ended_a.error().code == Errc::Protocol);
        CHECK(has(scene.ended_a.error().what, "not an offer of this link"));
    }
}

TEST_CASE("a process without a device refuses an edge whose tensors lie on one, by its name") {
    DeviceEdgesScene scene{Transport::Exported};
    Wiring wiring = wiring_of(scene.plan, kA, kEpochA);
    OfferPort port;
    TensorSender actor{kB};
    StageLoop loop{std::move(wiring), port, {}};
    loop.add(kA, actor);
    const Status ended = loop.run();
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.error().code == Errc::Protocol);
    CHECK(has(ended.error().what, "transport exported of early -> final"));
    CHECK(has(ended.error().what, "no device"));
}

TEST_CASE("a link that does not open within the limit ends its stage") {
    SUBCASE("no offer came") {
        DeviceEdgesScene scene{Transport::Nccl, 100};
        scene.start();
        scene.thread_a.join();
        REQUIRE_FALSE(scene.ended_a.ok());
        CHECK(has(scene.ended_a.error().what,
                  "transport nccl of early -> final: connecting: no "
                  "offer of the consumer came within 100 ms"));
    }
    // Twice the limit while the machine is too slow for what comes before it.
    SUBCASE("it does not connect") {
        for (std::uint32_t limit = 100;; limit *= 2) {
            DeviceEdgesScene scene{Transport::Nccl, limit};
            scene.device_a.may().may_open = false;
            scene.start();
            scene.relay();
            scene.thread_a.join();
            REQUIRE_FALSE(scene.ended_a.ok());
            const std::string& what = scene.ended_a.error().what;
            if (has(what, "no offer of the consumer came")) continue;
            CHECK(has(what, fmt::format("it did not connect within {} ms", limit)));
            break;
        }
    }
    SUBCASE("one that opens in time lives on") {
        for (std::uint32_t limit = 1500;; limit *= 2) {
            DeviceEdgesScene scene{Transport::Nccl, limit};
            scene.start();
            scene.relay();
            scene.ask(1);
            if (scene.await_answers(1) != numbers(1, 1)) {
                scene.end();
                const Status& late = scene.ended_a.ok() ? scene.ended_b : scene.ended_a;
                REQUIRE_FALSE(late.ok());
                REQUIRE(has(late.error().what, " within "));
                continue;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{limit + 100});
            scene.ask(2);
            CHECK(scene.await_answers(1) == numbers(2, 1));
            scene.end();
            CHECK(scene.ended_a.ok());
            CHECK(scene.ended_b.ok());
            break;
        }
    }
}

TEST_CASE("an error of a link ends the stage") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.start();
    scene.relay();
    scene.ask(1);
    REQUIRE(scene.await_answers(1) == numbers(1, 1));
    scene.device_a.may().polling_fails = true;
    scene.device_a.nudge();
    scene.ask(2);  // no slot is free any more
    scene.thread_a.join();
    REQUIRE_FALSE(scene.ended_a.ok());
    CHECK(has(scene.ended_a.error().what,
              "transport nccl of early -> final: exchanging tensors: fake device"));
    CHECK(scene.answers().empty());
}

TEST_CASE("an error of a link does not end the stage if the peer turns out to be lost") {
    // Again if a busy machine let the grace time pass before the loss was told.
    for (bool in_time = false; !in_time;) {
        DeviceEdgesScene scene{Transport::Nccl};
        scene.start();
        scene.relay();
        scene.ask(1);
        REQUIRE(scene.await_answers(1) == numbers(1, 1));
        const auto begin = std::chrono::steady_clock::now();
        scene.device_a.may().polling_fails = true;
        scene.device_a.nudge();
        scene.port_a.say(PeersLost{{kB}}, scene.plan.bell_of(kA).value());
        CHECK(soon([&] { return scene.device_a.counts().links == 0; }));
        in_time = std::chrono::steady_clock::now() - begin < EdgeLinks::kGrace;
        if (!in_time) continue;
        std::this_thread::sleep_for(std::chrono::microseconds{EdgeLinks::kGrace} + 200ms);
        scene.end();
        CHECK(scene.ended_a.ok());
        CHECK(scene.sender.lost == 1);
    }
}

TEST_CASE("the loss of a peer ends its links, and its next incarnation gets new ones") {
    DeviceEdgesScene scene{Transport::Nccl};
    SUBCASE("while they are connecting") {
        scene.device_b.may().may_open = false;
        scene.start();
        scene.relay();
        scene.ask(1);
    }
    SUBCASE("while a tensor is on its way") {
        scene.device_b.may().may_arrive = false;
        scene.start();
        scene.relay();
        scene.ask(1);
        REQUIRE(soon([&] { return scene.device_b.counts().expected == 1; }));
    }
    SUBCASE("in between") {
        scene.start();
        scene.relay();
        scene.ask(1);
        REQUIRE(scene.await_answers(1) == numbers(1, 1));
    }
    // B learns that A is gone, and gets channels to the next A, which is this test.
    constexpr Epoch kNext{kEpochA.value + 1};
    scene.port_b.say(PeersLost{{kA}}, scene.plan.bell_of(kB).value());
    CHECK(soon([&] { return scene.device_b.counts().links == 0; }));
    scene.device_b.may().may_open = true;
    scene.device_b.may().may_arrive = true;
    (void)scene.answers();
    scene.port_a.say(PortMail{{}, control::Shutdown{}}, scene.plan.bell_of(kA).value());
    scene.thread_a.join();
    scene.loop_a.reset();
    scene.plan.unwire(kA);
    REQUIRE(scene.plan.wire(kA, kNext).ok());
    AttachedEdges edges = scene.plan.attach(kB, kA).value();
    const std::size_t offers = scene.port_b.offer_count();
    scene.port_b.next_from_epoch = kNext;
    scene.port_b.say(PeersWired{{kA}, kNext, std::move(edges.out), std::move(edges.in)},
                     scene.plan.bell_of(kB).value());
    REQUIRE(soon([&] { return scene.port_b.offer_count() == offers + 1; }));

    OfferPort port;
    TensorSender sender{kB};
    StageLoop loop{wiring_of(scene.plan, kA, kNext), port, {.device = &scene.device_a}};
    loop.add(kA, sender);
    std::thread thread{[&] { CHECK(loop.run().ok()); }};
    port.say(LinkOffered{kA, kB, kEpochB, copy_of(scene.port_b.offers.back())},
             scene.plan.bell_of(kA).value());
    Wiring conductor = wiring_of(scene.plan, kConductor, Epoch{1});
    std::swap(scene.conductor.out, conductor.out);  // its new channel to A
    scene.ask(9);
    CHECK(scene.await_answers(1) == numbers(9, 1));
    port.say(PortMail{{}, control::Shutdown{}}, scene.plan.bell_of(kA).value());
    thread.join();
    scene.port_b.say(PortMail{{}, control::Shutdown{}}, scene.plan.bell_of(kB).value());
    scene.thread_b.join();
    CHECK(scene.ended_b.ok());
    CHECK(scene.device_b.counts().mismatches == 0);
}

TEST_CASE("a tensor that was never published is the fault of the peer that announced it") {
    DeviceEdgesScene scene{Transport::Nccl};
    scene.start();
    scene.relay();
    scene.ask(1);
    REQUIRE(scene.await_answers(1) == numbers(1, 1));
    scene.port_a.say(PortMail{{}, control::Shutdown{}}, scene.plan.bell_of(kA).value());
    scene.thread_a.join();
    Wiring rogue = wiring_of(scene.plan, kA, kEpochA);
    msg::TensorNote note{};
    note.tensor = 1;
    note.tensor_generation = 77;
    const auto to_b = std::find_if(rogue.out.begin(), rogue.out.end(),
                                   [](const OutEdge& edge) { return edge.to == kB; });
    REQUIRE(to_b != rogue.out.end());
    CHECK(to_b->ring.try_push(static_cast<std::uint16_t>(msg::Kind::TensorNote),
                              std::as_bytes(std::span{&note, 1})) == Push::Ok);
    to_b->bell.ring();
    CHECK(soon([&] { return scene.port_b.said_faults().size() == 1; }));
    scene.port_b.say(PortMail{{}, control::Shutdown{}}, scene.plan.bell_of(kB).value());
    scene.thread_b.join();
    CHECK(scene.ended_b.ok());
    CHECK(scene.device_b.counts().expected == 1);
    CHECK(has(scene.port_b.said_faults()[0].second, "is not published"));
}

TEST_CASE("stages of one process on a device pass tensors on in its memory") {
    const WiringPlan plan =
        wired_plan({{{kConductor, {kConductor}, 0}, Epoch{1}}, {{kA, {kA, kB}, 0}, kEpochA}},
                   {{kConductor, kA, 8, 2, 0, 0}, {kB, kConductor, 8, 2, 0, 0}});
    const EdgeSpec edge{kA, kB, 8, 2, 2, 200, Transport::Local};
    testing::FakeDevice device;
    OfferPort port;
    TensorSender sender{kB};
    TensorReader reader{kConductor};
    StageLoop loop{wiring_of(plan, kA, kEpochA), port, {.device = &device}};
    loop.add(kA, sender);
    loop.add(kB, reader);
    SUBCASE("which it has") {
        REQUIRE(loop.connect(edge).ok());
        for (Position i = 0; i < 10; ++i) sender.numbers.push_back(i);
        std::thread thread{[&] { CHECK(loop.run().ok()); }};
        Wiring conductor = wiring_of(plan, kConductor, Epoch{1});
        msg::Proposal ten{};
        ten.root_position = 10;
        CHECK(conductor.out[0].ring.try_push(1, std::as_bytes(std::span{&ten, 1})) == Push::Ok);
        conductor.out[0].bell.ring();
        std::vector<std::byte> buffer(conductor.in[0].ring.payload_bytes());
        for (int answers = 0; answers < 8; ++answers) {  // its ring has room for so many
            REQUIRE(
                soon([&] { return conductor.in[0].ring.try_pop(buffer).outcome == Pop::Frame; }));
        }
        port.say(PortMail{{}, control::Shutdown{}}, plan.bell_of(kA).value());
        thread.join();
        CHECK(reader.read.size() >= 8);
        CHECK(all_on_device(reader.places));
        CHECK(all_on_device(sender.places));
    }
    SUBCASE("which is full") {
        device.may().out_of_memory = true;
        const Status connected = loop.connect(edge);
        REQUIRE_FALSE(connected.ok());
        CHECK(connected.error().code == Errc::OutOfMemory);
        CHECK(has(connected.error().what, "transport local of stage 1 -> stage 2"));
    }
    SUBCASE("which is not there") {
        StageLoop without{wiring_of(plan, kA, kEpochA), port, {}};
        without.add(kA, sender);
        without.add(kB, reader);
        const Status connected = without.connect(edge);
        REQUIRE_FALSE(connected.ok());
        CHECK(connected.error().code == Errc::Protocol);
    }
}
