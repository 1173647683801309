// Measures ring and doorbell between two processes on this machine: round trips of 64 bytes with
// both ends spinning, asleep, and on one core; frames per second; bytes per second.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "ipc/base/check.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/spsc_ring.hpp"

using namespace paceline;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint16_t kFrame = 1;
constexpr std::uint32_t kBytesMax = 8192;
constexpr std::array kRules = {KindRule{kFrame, 1, kBytesMax, Urgency::Normal}};

struct Line {
    ShmFile ring;
    ShmFile bell;
    explicit Line(std::uint32_t payload) {
        RingOptions options;
        options.slots = 256;
        options.urgent_slots = 1;
        options.payload_bytes = std::max(payload, kBytesMax);
        ring = create_ring("bench", options).value();
        bell = Doorbell::create("bench").value();
    }
};

struct Ends {
    RingProducer out;
    RingConsumer in;
    Doorbell peer;
    Doorbell own;
};

Ends attach(const Line& out, const Line& in) {
    const auto map = [](const ShmFile& file) { return ShmRegion::attach(file.fd(), 1).value(); };
    return {RingProducer::attach(map(out.ring), Epoch{1}, kRules).value(),
            RingConsumer::attach(map(in.ring), Epoch{1}, kRules).value(),
            Doorbell::attach(map(out.bell)).value(), Doorbell::attach(map(in.bell)).value()};
}

void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(core), &set);
    PACE_CHECK(::sched_setaffinity(0, sizeof set, &set) == 0, "cannot pin");
}

void transfer(Ends& ends, std::span<std::byte> bytes, std::chrono::microseconds spin) {
    while (!ends.own.wait([&] { return ends.in.has_frame(); }, spin, 100ms)) {
    }
    PACE_CHECK(ends.in.try_pop(bytes).outcome == Pop::Frame, "lost a frame");
}

void round_trips(
    const char* name, std::chrono::microseconds spin, int core_a, int core_b, int rounds) {
    const Line there{64};
    const Line back{64};
    const pid_t child = ::fork();
    std::vector<std::byte> buffer(kBytesMax);
    const std::span<std::byte> frame = std::span{buffer}.first(64);
    if (child == 0) {
        pin(core_b);
        Ends ends = attach(back, there);
        for (int i = 0; i < rounds; ++i) {
            transfer(ends, buffer, spin);
            (void)ends.out.try_push(kFrame, frame);
            ends.peer.ring();
        }
        ::_exit(0);
    }
    pin(core_a);
    Ends ends = attach(there, back);
    std::vector<double> micros;
    for (int i = 0; i < rounds; ++i) {
        const auto start = Clock::now();
        (void)ends.out.try_push(kFrame, frame);
        ends.peer.ring();
        transfer(ends, buffer, spin);
        micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
                         2);
    }
    ::waitpid(child, nullptr, 0);
    std::sort(micros.begin(), micros.end());
    std::printf("one way, 64 B, %-28s p50 %7.3f us  p99 %8.3f us\n", name,
                micros[micros.size() / 2], micros[micros.size() * 99 / 100]);
}

void throughput(std::uint32_t bytes, std::uint64_t frames, std::uint64_t batch) {
    const Line line{bytes};
    const Line back{64};
    const pid_t child = ::fork();
    std::vector<std::byte> buffer(kBytesMax);
    if (child == 0) {
        pin(1);
        Ends ends = attach(back, line);
        for (std::uint64_t i = 0; i < frames;) {
            const Pop outcome = ends.in.try_pop(buffer).outcome;
            PACE_CHECK(outcome != Pop::Corrupt, "a corrupt ring");
            if (outcome == Pop::Frame) ++i;
        }
        ::_exit(0);
    }
    pin(0);
    Ends ends = attach(line, back);
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < frames;) {
        std::uint64_t put = 0;
        while (put < batch && i < frames &&
               ends.out.try_put(kFrame, std::span{buffer}.first(bytes)) == Push::Ok) {
            ++put;
            ++i;
        }
        ends.out.publish();
        if (put == 0) cpu_relax();
    }
    ::waitpid(child, nullptr, 0);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("%5u B frames, batches of %2llu: %6.2f M/s, %5.2f GB/s\n", bytes,
                static_cast<unsigned long long>(batch), static_cast<double>(frames) / seconds / 1e6,
                static_cast<double>(frames) * bytes / seconds / 1e9);
}

}  // namespace

int main() {
    round_trips("spinning, two cores", 1s, 0, 1, 200'000);
    round_trips("spin 20 us then sleep", 20us, 0, 1, 200'000);
    round_trips("sleeping, two cores", 0us, 0, 1, 20'000);
    round_trips("sleeping, one core", 0us, 0, 0, 100'000);
    throughput(64, 20'000'000, 1);
    throughput(64, 20'000'000, 32);
    throughput(8192, 500'000, 4);
    return 0;
}
