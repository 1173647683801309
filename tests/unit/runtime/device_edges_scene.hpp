// Two loops with a device edge between them, as threads: A sends tensors to B, the test is the
// conductor and the way of offers.
#pragma once

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/loop/edge_links.hpp"
#include "runtime/loop/stage_loop.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"
#include "tests/unit/runtime/tensor_actors.hpp"

namespace paceline::test {

inline constexpr StageId kA{1};
inline constexpr StageId kB{2};
inline constexpr Epoch kEpochA{4};
inline constexpr Epoch kEpochB{7};

/// The answer of `condition`, within ten seconds on a busy machine.
inline bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 10'000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return condition();
}

inline LinkOffer copy_of(const LinkOffer& offer) {
    LinkOffer copy{offer.bytes, {}};
    for (const OwnedFd& file : offer.files) {
        copy.files.emplace_back(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
    }
    return copy;
}

/// A stage's line to the test. What the test says is delivered at the loop's next look.
struct OfferPort final : ControlPort {
    [[nodiscard]] Status send(Envelope, const control::Message&) override { return {}; }
    [[nodiscard]] Status poll(const Deliver& deliver) override {
        ++polls;
        std::vector<PortEvent> now;
        {
            const std::lock_guard lock{mutex};
            now = std::exchange(events, {});
        }
        for (PortEvent& event : now) deliver(std::move(event));
        return {};
    }
    [[nodiscard]] Status report_fault(StageId peer, Epoch, const Error& error) override {
        const std::lock_guard lock{mutex};
        faults.emplace_back(peer, error.what);
        return {};
    }
    [[nodiscard]] Status wired(StageId, Epoch) override { return {}; }
    [[nodiscard]] Status offer(StageId from,
                               Epoch from_epoch,
                               StageId to,
                               const LinkOffer& offer) override {
        const std::lock_guard lock{mutex};
        CHECK(from == kA);
        CHECK(from_epoch == next_from_epoch);
        CHECK(to == kB);
        offers.push_back(copy_of(offer));
        return {};
    }
    void say(PortEvent event, Doorbell bell) {
        {
            const std::lock_guard lock{mutex};
            events.push_back(std::move(event));
        }
        bell.announce();
    }
    [[nodiscard]] std::size_t offer_count() {
        const std::lock_guard lock{mutex};
        return offers.size();
    }
    [[nodiscard]] std::vector<std::pair<StageId, std::string>> said_faults() {
        const std::lock_guard lock{mutex};
        return faults;
    }

    Epoch next_from_epoch = kEpochA;  // wanted of the next offer
    std::mutex mutex;
    std::vector<PortEvent> events;                        // under the mutex, and those below
    std::vector<std::pair<StageId, std::string>> faults;  // of whom, and what
    std::vector<LinkOffer> offers;
    std::atomic<int> polls{0};
};

struct DeviceEdgesScene {
    explicit DeviceEdgesScene(Transport transport, std::uint32_t link_limit_ms = 0)
        : plan{wired_plan({{{kConductor, {kConductor}, 0}, Epoch{1}},
                           {{kA, {kA}, 0}, kEpochA},
                           {{kB, {kB}, 0}, kEpochB}},
                          {{kConductor, kA, 64, 16, 0, 0},
                           {kA, kB, 8, 2, 3, 64, transport, "early -> final"},
                           {kConductor, kB, 64, 16, 0, 0},
                           {kB, kConductor, 64, 16, 0, 0}})},
          conductor{wiring_of(plan, kConductor, Epoch{1})} {
        Wiring wiring_a = wiring_of(plan, kA, kEpochA);
        Wiring wiring_b = wiring_of(plan, kB, kEpochB);
        wiring_a.link_limit_ms = wiring_b.link_limit_ms = link_limit_ms;
        const ShmFile file = StageTelemetry::create(kB, kEpochB, "b", 0).value();
        telemetry_b = StageTelemetryView::attach(file.fd()).value();
        wiring_b.telemetry = std::make_shared<StageTelemetry>(
            StageTelemetry::attach(ShmRegion::attach(file.fd(), 1).value()).value());
        loop_a = std::make_unique<StageLoop>(std::move(wiring_a), port_a,
                                             StageLoopOptions{.device = &device_a});
        loop_b = std::make_unique<StageLoop>(std::move(wiring_b), port_b,
                                             StageLoopOptions{.device = &device_b});
        loop_a->add(kA, sender);
        loop_b->add(kB, reader);
    }
    ~DeviceEdgesScene() { end(); }
    DeviceEdgesScene(const DeviceEdgesScene&) = delete;
    DeviceEdgesScene& operator=(const DeviceEdgesScene&) = delete;

    void start() {
        thread_a = std::thread{[this] { ended_a = loop_a->run(); }};
        thread_b = std::thread{[this] { ended_b = loop_b->run(); }};
    }
    /// Passes the newest offer on.
    void relay(Epoch to_epoch = kEpochB) {
        REQUIRE(soon([this] { return port_b.offer_count() > 0; }));
        LinkOffer copy;
        {
            const std::lock_guard lock{port_b.mutex};
            copy = copy_of(port_b.offers.back());
        }
        port_a.say(LinkOffered{kA, kB, to_epoch, std::move(copy)}, plan.bell_of(kA).value());
    }
    /// A number to A, whose tensor B is to read.
    void ask(Position number) { push(kA, number); }
    void push(StageId to, Position number) {
        msg::Proposal proposal{};
        proposal.root_position = number;
        for (OutEdge& edge : conductor.out) {
            if (edge.to != to) continue;
            REQUIRE(soon([&] {
                return edge.ring.try_push(1, std::as_bytes(std::span{&proposal, 1})) == Push::Ok;
            }));
            edge.bell.ring();
        }
    }
    /// What B has answered since the last call.
    std::vector<Position> answers() {
        std::vector<Position> numbers;
        std::vector<std::byte> buffer(conductor.in[0].ring.payload_bytes());
        for (;;) {
            const Popped popped = conductor.in[0].ring.try_pop(buffer);
            if (popped.outcome != Pop::Frame) return numbers;
            numbers.push_back(as<msg::Proposal>(popped.payload).root_position - 1000);
        }
    }
    /// The next `count` answers.
    std::vector<Position> await_answers(std::size_t count) {
        std::vector<Position> all;
        (void)soon([&] {
            for (const Position number : answers()) all.push_back(number);
            return all.size() >= count;
        });
        return all;
    }
    void nudge() {
        device_a.nudge();
        device_b.nudge();
    }
    /// Shuts both loops down, unless they have ended, and destroys them.
    void end() {
        if (loop_a == nullptr) return;
        const auto shut = [this](OfferPort& port, StageId id) {
            port.say(PortMail{{}, control::Shutdown{}}, plan.bell_of(id).value());
        };
        shut(port_a, kA);
        shut(port_b, kB);
        if (thread_a.joinable()) thread_a.join();
        if (thread_b.joinable()) thread_b.join();
        loop_a.reset();
        loop_b.reset();
    }

    WiringPlan plan;
    Wiring conductor;
    testing::FakeDevice device_a;
    testing::FakeDevice device_b;
    OfferPort port_a;
    OfferPort port_b;
    TensorSender sender{kB};
    TensorReader reader{kConductor};
    std::optional<StageTelemetryView> telemetry_b;
    std::unique_ptr<StageLoop> loop_a;
    std::unique_ptr<StageLoop> loop_b;
    std::thread thread_a;
    std::thread thread_b;
    Status ended_a;  // after end()
    Status ended_b;
};

}  // namespace paceline::test
