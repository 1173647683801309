// The ring, the pool and the doorbell between two real processes.
#include <array>
#include <chrono>
#include <cstring>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_pool.hpp"

using namespace paceline;
using namespace std::chrono_literals;

namespace {

constexpr std::uint16_t kFrame = 1;
constexpr std::array kRules = {KindRule{kFrame, 1, 64, Urgency::Normal}};

/// A channel there and back, as one end of it attaches.
struct Line {
    ShmFile ring;
    ShmFile bell;
    static Line make() {
        RingOptions options;
        options.slots = 8;
        options.urgent_slots = 1;
        options.payload_bytes = 64;
        return {create_ring("test", options).value(), Doorbell::create("test").value()};
    }
    [[nodiscard]] RingProducer producer() const {
        return RingProducer::attach(ShmRegion::attach(ring.fd(), 1).value(), Epoch{1}, kRules)
            .value();
    }
    [[nodiscard]] RingConsumer consumer() const {
        return RingConsumer::attach(ShmRegion::attach(ring.fd(), 1).value(), Epoch{1}, kRules)
            .value();
    }
    [[nodiscard]] Doorbell attach_bell() const {
        return Doorbell::attach(ShmRegion::attach(bell.fd(), 1).value()).value();
    }
};

void send(RingProducer& ring, Doorbell& bell, std::uint64_t value) {
    while (ring.try_push(kFrame, std::as_bytes(std::span{&value, 1})) == Push::Full) ::usleep(50);
    bell.ring();
}

/// The next value, or 0 after two seconds without one.
std::uint64_t receive(RingConsumer& ring, Doorbell& bell, std::chrono::microseconds spin) {
    std::array<std::byte, 64> buffer{};
    for (int turn = 0; turn < 20; ++turn) {
        if (!bell.wait([&] { return ring.has_frame(); }, spin, 100ms)) continue;
        const Popped popped = ring.try_pop(buffer);
        if (popped.outcome != Pop::Frame) return 0;
        std::uint64_t value = 0;
        std::memcpy(&value, popped.payload.data(), sizeof value);
        return value;
    }
    return 0;
}

/// Answers every value with its double until the value 0 comes or nothing does.
[[noreturn]] void echo(const Line& there, const Line& back) {
    RingConsumer in = there.consumer();
    RingProducer out = back.producer();
    Doorbell own = there.attach_bell();
    Doorbell peer = back.attach_bell();
    for (;;) {
        const std::uint64_t value = receive(in, own, 0us);
        if (value == 0) ::_exit(0);
        send(out, peer, 2 * value);
    }
}

}  // namespace

TEST_CASE("ping-pong between two processes: every answer is right") {
    const Line there = Line::make();
    const Line back = Line::make();
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) echo(there, back);

    RingProducer out = there.producer();
    RingConsumer in = back.consumer();
    Doorbell peer = there.attach_bell();
    Doorbell own = back.attach_bell();
    int wrong = 0;
    for (std::uint64_t i = 1; i <= 5000; ++i) {
        send(out, peer, i);
        wrong += receive(in, own, i % 2 == 0 ? 20us : 0us) != 2 * i;
    }
    send(out, peer, 0);
    CHECK(wrong == 0);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("a producer killed at a random moment leaves whole frames and nothing else") {
    for (int round = 0; round < 30; ++round) {
        const Line line = Line::make();
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            RingProducer out = line.producer();
            Doorbell bell = line.attach_bell();
            for (std::uint64_t i = 1;; ++i) send(out, bell, i);
        }
        RingConsumer in = line.consumer();
        Doorbell own = line.attach_bell();
        std::uint64_t expected = 1;
        for (; expected <= 50 + static_cast<std::uint64_t>(round) * 7; ++expected) {
            REQUIRE(receive(in, own, 0us) == expected);
        }
        ::kill(child, SIGKILL);
        REQUIRE(::waitpid(child, nullptr, 0) == child);
        std::array<std::byte, 64> buffer{};
        for (;; ++expected) {  // what it had published before is still good
            const Popped popped = in.try_pop(buffer);
            REQUIRE(popped.outcome != Pop::Corrupt);
            if (popped.outcome == Pop::Empty) break;
            std::uint64_t value = 0;
            std::memcpy(&value, popped.payload.data(), sizeof value);
            CHECK(value == expected);
        }
    }
}
