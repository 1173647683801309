// Two and three loops as threads, on the same rings that processes use.
#include "runtime/loop/stage_loop.hpp"

#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/loop/stage_edges.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

/// A port whose messages come from the test.
struct TestPort : ControlPort {
    [[nodiscard]] Status send(Envelope envelope, const control::Message&) override {
        sent_to.push_back(envelope.to);
        return {};
    }
    [[nodiscard]] Status poll(const Deliver& deliver) override {
        ++polls;
        if (gone.load()) return Error{Errc::PeerGone, "the conductor is gone"};
        if (begin_ready.exchange(false)) deliver(PortMail{{}, control::Begin{}});
        if (news_ready.load()) {
            for (PortEvent& event : news) deliver(std::move(event));
            news.clear();
            news_ready = false;  // the test may write the next ones
        }
        if (shutdown.load()) deliver(PortMail{{}, control::Shutdown{}});
        return {};
    }
    [[nodiscard]] Status report_fault(StageId peer, Epoch epoch, const Error& error) override {
        faults.push_back({peer, epoch, error.what});
        ++fault_count;
        return {};
    }
    [[nodiscard]] Status wired(StageId peer, Epoch epoch) override {
        rewired.emplace_back(peer, epoch);
        return {};
    }
    struct Fault {
        StageId peer;
        Epoch epoch;
        std::string what;
    };
    std::vector<StageId> sent_to;
    std::vector<Fault> faults;
    std::vector<std::pair<StageId, Epoch>> rewired;
    std::vector<PortEvent> news;
    std::atomic<int> polls{0};
    std::atomic<int> fault_count{0};
    std::atomic<bool> gone{false};
    std::atomic<bool> shutdown{false};
    std::atomic<bool> begin_ready{false};
    std::atomic<bool> news_ready{false};
};

constexpr Epoch kEpochB{3};
constexpr msg::Proposal kNothing{};

WiringPlan plan_of(std::uint32_t spin, std::uint32_t tensors) {
    return wired_plan({{{kConductor, {kConductor}, 0}, Epoch{1}},
                       {{kA, {kA}, spin}, Epoch{1}},
                       {{kB, {kB}, spin}, kEpochB}},
                      {{kConductor, kA, 8, 2, 0, 0},
                       {kA, kB, 8, 2, tensors, tensors == 0 ? 0U : 64U},
                       {kB, kConductor, 8, 2, 0, 0}});
}

PeersWired news_of(const WiringPlan& plan, StageId peer, Epoch epoch, StageId survivor) {
    AttachedEdges edges = plan.attach(survivor, peer).value();
    return {{peer}, epoch, std::move(edges.out), std::move(edges.in)};
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
    StageLoop loop_a{wiring_of(plan, kA, Epoch{1}), port_a, {}};
    StageLoop loop_b{wiring_of(plan, kB, kEpochB), port_b, {}};
    StageLoop loop_c{wiring_of(plan, kConductor, Epoch{1}), port_c, {}};
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
    CHECK(source.rooms > 0);
}

TEST_CASE("a loop whose conductor is gone ends by itself, without a bell") {
    const WiringPlan plan = plan_of(0, 0);
    TestPort port;
    Relay actor{kB};
    StageLoop loop{wiring_of(plan, kA, Epoch{1}), port, {.poll_limit = Micros{5000}, .burst = 16}};
    loop.add(kA, actor);
    std::thread thread{[&] {
        const Status status = loop.run();
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().code == Errc::PeerGone);
    }};
    while (port.polls <= 2) std::this_thread::yield();
    port.gone = true;
    thread.join();
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
    StageLoop loop{
        wiring_of(plan, kA, Epoch{1}), port, {.poll_limit = Micros{100'000}, .burst = 16}};
    loop.add(kA, actor);
    std::thread conductor{[&] {
        while (port.polls == 0) std::this_thread::yield();
        Wiring own = wiring_of(plan, kConductor, Epoch{1});
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

TEST_CASE("a peer that breaks a channel is reported by name and epoch, and treated as lost") {
    const WiringPlan plan = plan_of(0, 0);
    const WiringPlan::WireMessage<control::Wire> outgoing = plan.wire_message_for(kB);
    const control::EdgeWire* from_a = nullptr;
    for (const control::EdgeWire& edge : outgoing.message.edges) {
        if (edge.peer == kA && !edge.outgoing) from_a = &edge;
    }
    REQUIRE(from_a != nullptr);
    const ShmRegion ring =
        ShmRegion::attach(outgoing.files[from_a->ring_file], sizeof(RingHeader)).value();
    reinterpret_cast<RingHeader*>(ring.bytes().data())->head.store(1'000'000);
    TestPort port;
    Relay actor{kConductor};
    StageLoop loop{wiring_of(plan, kB, kEpochB), port, {}};
    loop.add(kB, actor);
    std::thread thread{[&] { CHECK(loop.run().ok()); }};
    while (port.fault_count == 0) std::this_thread::yield();
    std::this_thread::sleep_for(
        std::chrono::milliseconds{30});  // for a second report, which is wrong
    port.shutdown = true;
    thread.join();
    REQUIRE(port.faults.size() == 1);
    CHECK(port.faults[0].peer == kA);
    CHECK(port.faults[0].epoch == Epoch{1});
    CHECK(port.faults[0].what.find("channel from stage 1") == 0);
    CHECK(actor.lost == std::vector{kA});
}

TEST_CASE("what is sent to a lost peer is dropped, and its next incarnation gets new channels") {
    WiringPlan plan = plan_of(0, 2);
    TestPort port;
    Relay a{kB};
    StageLoop loop{wiring_of(plan, kA, Epoch{1}), port, {}};
    loop.add(kA, a);
    Wiring conductor = wiring_of(plan, kConductor, Epoch{1});
    const auto send_number = [&conductor](Position number) {
        msg::Proposal proposal{};
        proposal.root_position = number;
        Push pushed = Push::Full;
        // On a busy machine the loop's thread may be late by more messages than the ring has room
        // for.
        for (int tries = 0; tries < 10'000 && pushed == Push::Full; ++tries) {
            if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
            pushed = conductor.out[0].ring.try_push(1, std::as_bytes(std::span{&proposal, 1}));
            conductor.out[0].bell.ring();
        }
        CHECK(pushed == Push::Ok);
    };
    const auto say = [&port, &plan](PortEvent event) {
        port.news.push_back(std::move(event));
        port.news_ready = true;
        plan.bell_of(kA).value().announce();
        while (port.news_ready) std::this_thread::yield();
    };
    std::thread thread{[&] { CHECK(loop.run().ok()); }};
    say(PeersLost{{kB}});
    constexpr int kDropped = 20;
    for (Position i = 0; i < kDropped; ++i) send_number(i);
    while (a.sent < kDropped) std::this_thread::yield();
    plan.unwire(kB);
    REQUIRE(plan.wire(kB, Epoch{4}).ok());
    Wiring b = wiring_of(plan, kB, Epoch{4});
    say(news_of(plan, kB, Epoch{4}, kA));
    say(PeersJoined{{kB}});
    send_number(100);
    while (!b.in[0].ring.has_frame()) std::this_thread::yield();
    std::vector<std::byte> buffer(b.in[0].ring.payload_bytes());
    const Popped popped = b.in[0].ring.try_pop(buffer);
    REQUIRE(popped.outcome == Pop::Frame);
    CHECK(as<msg::Proposal>(popped.payload).root_position == 101);
    CHECK_FALSE(b.in[0].ring.has_frame());  // nothing of what was sent meanwhile
    port.shutdown = true;
    thread.join();
    CHECK(a.lost == std::vector{kB});
    CHECK(a.joined == std::vector{kB});
    REQUIRE(port.rewired.size() == 1);
    CHECK(port.rewired[0] == std::pair{kB, Epoch{4}});
}

TEST_CASE("a consumer that breaks a channel on which a producer waits for room is reported, once") {
    const WiringPlan plan = plan_of(0, 2);
    const WiringPlan::WireMessage<control::Wire> outgoing = plan.wire_message_for(kA);
    const control::EdgeWire* to_b = nullptr;
    for (const control::EdgeWire& edge : outgoing.message.edges) {
        if (edge.peer == kB && edge.outgoing) to_b = &edge;
    }
    REQUIRE(to_b != nullptr);
    const ShmRegion ring =
        ShmRegion::attach(outgoing.files[to_b->ring_file], sizeof(RingHeader)).value();
    const ShmRegion pool =
        ShmRegion::attach(outgoing.files[to_b->pool_file], sizeof(PoolHeader)).value();
    TestPort port;
    Relay actor{kB};
    const ShmFile page = StageTelemetry::create(kA, Epoch{1}, "a", 0).value();
    const StageTelemetryView full = StageTelemetryView::attach(page.fd()).value();
    Wiring wiring = wiring_of(plan, kA, Epoch{1});
    wiring.telemetry = std::make_shared<StageTelemetry>(
        StageTelemetry::attach(ShmRegion::attach(page.fd(), 1).value()).value());
    StageLoop loop{std::move(wiring), port, {}};
    loop.add(kA, actor);
    Wiring conductor = wiring_of(plan, kConductor, Epoch{1});
    for (int i = 0; i < 4; ++i) {  // the pool has two slots
        CHECK(conductor.out[0].ring.try_push(1, std::as_bytes(std::span{&kNothing, 1})) ==
              Push::Ok);
    }
    std::thread thread{[&] { CHECK(loop.run().ok()); }};
    while (full.snapshot().counter(Counter::ChannelFull) == 0) std::this_thread::yield();
    // Both at once: what was made from them is one complaint.
    reinterpret_cast<RingHeader*>(ring.bytes().data())->tail.store(1'000'000);
    auto* states = reinterpret_cast<PoolSlotState*>(pool.bytes().data() + sizeof(PoolHeader));
    states[0].generation.store(77);
    while (port.fault_count == 0) std::this_thread::yield();
    std::this_thread::sleep_for(
        std::chrono::milliseconds{30});  // for a second report, which is wrong
    port.shutdown = true;
    thread.join();
    REQUIRE(port.faults.size() == 1);
    CHECK(port.faults[0].peer == kB);
    CHECK(port.faults[0].epoch == kEpochB);
    CHECK(actor.lost == std::vector{kB});
}

TEST_CASE("channels of lost peers are freed although there is always another job to do") {
    WiringPlan plan = plan_of(0, 2);
    TestPort port;
    struct Busy : Relay {
        Busy() : Relay{kB} {}
        void on_start(StageContext& context) override {
            stage = &context;
            submit();
        }
        void submit() {
            stage->submit(
                {.rows = 1}, [] { return JobOutcome::Done; }, [this](JobOutcome) { submit(); });
        }
        StageContext* stage = nullptr;
    } actor;
    const auto mapped = [] {
        std::ifstream maps{"/proc/self/maps"};
        int found = 0;
        for (std::string line; std::getline(maps, line);) {
            if (line.find("paceline-ring-1-2") != std::string::npos) ++found;
        }
        return found;
    };
    const int before = mapped();
    StageLoop loop{wiring_of(plan, kA, Epoch{1}), port, {}};
    loop.add(kA, actor);
    std::thread thread{[&] { CHECK(loop.run().ok()); }};
    const auto say = [&port, &plan](PortEvent event) {
        port.news.push_back(std::move(event));
        port.news_ready = true;
        plan.bell_of(kA).value().announce();
        while (port.news_ready) std::this_thread::yield();
    };
    for (std::uint32_t epoch = 4; epoch < 9; ++epoch) {
        say(PeersLost{{kB}});
        plan.unwire(kB);
        REQUIRE(plan.wire(kB, Epoch{epoch}).ok());
        say(news_of(plan, kB, Epoch{epoch}, kA));
    }
    // It is free to be late, not never.
    for (int i = 0; i < 10'000 && mapped() > before + 1; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    CHECK(mapped() == before + 1);
    port.shutdown = true;
    thread.join();
}

TEST_CASE("a channel stays where it is while channels with others come and go") {
    WiringPlan plan = wired_plan({{{kConductor, {kConductor}, 0}, Epoch{1}},
                                  {{kA, {kA}, 0}, Epoch{1}},
                                  {{kB, {kB}, 0}, kEpochB}},
                                 {{kA, kConductor, 8, 2, 2, 64},
                                  {kB, kConductor, 8, 2, 2, 64},
                                  {kConductor, kA, 8, 2, 2, 64},
                                  {kConductor, kB, 8, 2, 2, 64}});
    Wiring wiring = wiring_of(plan, kConductor, Epoch{1});
    StageEdges edges{wiring};
    TensorConsumer* const from_b = edges.tensors_from(kConductor, kB);
    TensorProducer* const to_b = edges.tensors_to(kConductor, kB);
    REQUIRE(from_b != nullptr);
    REQUIRE(to_b != nullptr);
    REQUIRE(edges.lose(kA));
    CHECK(edges.tensors_from(kConductor, kB) == from_b);
    CHECK(edges.tensors_to(kConductor, kB) == to_b);
    CHECK(edges.tensors_to(kConductor, kA) == nullptr);
    REQUIRE(plan.wire(kA, Epoch{2}).ok());
    AttachedEdges again = plan.attach(kConductor, kA).value();
    edges.add(std::move(again.out), std::move(again.in));
    CHECK(edges.tensors_from(kConductor, kB) == from_b);
    CHECK(edges.tensors_to(kConductor, kB) == to_b);
    CHECK(edges.tensors_to(kConductor, kA) != nullptr);
}

TEST_CASE("a running job sees what the verifier in another loop says of the text") {
    const WiringPlan plan = plan_of(0, 0);
    const ShmFile file = CancelBoard::create().value();
    const auto with_board = [&](StageId id, Epoch epoch) {
        Wiring wiring = wiring_of(plan, id, epoch);
        Result<ShmRegion> memory = ShmRegion::attach(file.fd(), 1);
        wiring.board =
            std::make_shared<CancelBoard>(CancelBoard::attach(std::move(memory).value()).value());
        return wiring;
    };
    struct Verifier : Relay {
        Verifier() : Relay{kB} {}
        void on_start(StageContext& context) override {
            context.publish_watermark(RequestId{7}, Attempt{2}, 30, 4);
            context.stop();
        }
    } verifier;
    struct Worker : Relay {
        Worker() : Relay{kA} {}
        void on_start(StageContext& context) override {
            const WatermarkCell* cell = context.watermark_cell(RequestId{7});
            REQUIRE(cell != nullptr);
            context.submit(
                {.rows = 1},
                [this, cell] {
                    before = cell->read(RequestId{7}, Attempt{2});
                    running = true;
                    while (!verified) std::this_thread::yield();
                    after = cell->read(RequestId{7}, Attempt{2});
                    return JobOutcome::Done;
                },
                [&context](JobOutcome) { context.stop(); });
        }
        std::optional<WatermarkCell::Watermark> before;
        std::optional<WatermarkCell::Watermark> after;
        std::atomic<bool> running{false};
        std::atomic<bool> verified{false};
    } worker;
    TestPort port_a;
    TestPort port_b;
    StageLoop verifying{with_board(kA, Epoch{1}), port_a, {}};
    StageLoop working{with_board(kB, kEpochB), port_b, {}};
    verifying.add(kA, verifier);
    working.add(kB, worker);
    std::thread thread{[&] { CHECK(working.run().ok()); }};
    while (!worker.running) std::this_thread::yield();
    CHECK(verifying.run().ok());
    worker.verified = true;
    thread.join();
    CHECK_FALSE(worker.before);
    CHECK(worker.after == WatermarkCell::Watermark{30, 4});
}

TEST_CASE("without a cancel board there is no watermark to read") {
    const WiringPlan plan = plan_of(0, 0);
    struct Lonely : Relay {
        Lonely() : Relay{kB} {}
        void on_start(StageContext& context) override {
            context.publish_watermark(RequestId{7}, Attempt{2}, 30, 4);
            CHECK(context.watermark_cell(RequestId{7}) == nullptr);
            context.stop();
        }
    } lonely;
    TestPort port;
    StageLoop loop{wiring_of(plan, kA, Epoch{1}), port, {}};  // without a board
    loop.add(kA, lonely);
    CHECK(loop.run().ok());
}
