// Measures the ring and the doorbell between two pinned processes, beside the floors that the
// machine sets and the ways that others take. README.md says how to read the table.
//
//     bench_ring [--rounds N] [--cores A,B]
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bench/ring/links.hpp"
#include "bench/ring/processes.hpp"

using namespace paceline;
using namespace paceline::bench;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kSpinTrips = 100'000;
constexpr std::size_t kSleepTrips = 2'000;
constexpr std::size_t kOneCoreTrips = 20'000;
constexpr std::uint64_t kMessages = 4'000'000;
constexpr std::uint64_t kFrames = 100'000;

/// One row of latencies: percentiles of each round; their medians are printed.
struct Latency {
    std::string name;
    std::function<std::vector<double>()> measure;
    std::vector<double> p50, p99, p999;
};

void measure(Latency& row) {
    const std::vector<double> micros = row.measure();
    row.p50.push_back(percentile(micros, 0.5));
    row.p99.push_back(percentile(micros, 0.99));
    row.p999.push_back(percentile(micros, 0.999));
}

/// The first row is ours; the ratio of the others' p50 to it is what it gains.
void print(const char* title, const std::vector<Latency>& rows) {
    std::printf("\n%-44s %9s %9s %9s  %-19s %s\n", title, "p50 us", "p99 us", "p99.9 us",
                "p50 of the rounds", "ours is");
    for (const Latency& row : rows) {
        std::printf("  %-42s %9.3f %9.3f %9.3f  %7.3f .. %-8.3f", row.name.c_str(), median(row.p50),
                    median(row.p99), median(row.p999), percentile(row.p50, 0),
                    percentile(row.p50, 1));
        if (&row != &rows.front()) {
            std::printf(" %5.2f of it", median(rows.front().p50) / median(row.p50));
        }
        std::printf("\n");
    }
}

template <class Link, class... Arguments>
Latency latency(const char* name, Cores cores, std::size_t trips, Arguments... arguments) {
    const auto measure = [=] {
        Link link{arguments...};
        return round_trips(link, cores, trips);
    };
    return {name, measure, {}, {}, {}};
}

struct Load {
    std::uint32_t bytes = kMessageBytes;
    std::uint64_t frames = kMessages;
    std::uint64_t batch = 1;
    bool rings = false;  // the doorbell, once per batch
};

/// Frames per second from one core to the other; the consumer spins.
double frames_per_second(const Load& load, Cores cores) {
    Line line{load.bytes > kMessageBytes ? std::span<const KindRule>{kFrameRules}
                                         : std::span<const KindRule>{kMessageRules}};
    RingLink ready{1s};
    std::vector<std::byte> source(kFrameBytesMax);
    std::vector<std::byte> sink(kFrameBytesMax);
    double seconds = 0;
    const auto produce = [&] {
        ready.receive(0);
        const auto start = Clock::now();
        for (std::uint64_t sent = 0; sent < load.frames;) {
            std::uint64_t put = 0;
            while (put < load.batch && sent + put < load.frames &&
                   line.out.try_put(kFrame, std::span{source}.first(load.bytes)) == Push::Ok) {
                ++put;
            }
            if (put == 0) {
                cpu_relax();
                continue;
            }
            sent += put;
            line.out.publish();
            if (load.rings) line.peer_bell.ring();
        }
        ready.receive(0);  // all of them were taken
        seconds = std::chrono::duration<double>(Clock::now() - start).count();
    };
    const auto consume = [&] {
        ready.send(1);
        for (std::uint64_t taken = 0; taken < load.frames;) {
            const Pop outcome = line.in.try_pop(sink).outcome;
            PACE_CHECK(outcome != Pop::Corrupt, "a corrupt ring");
            taken += outcome == Pop::Frame ? 1 : 0;
            if (outcome == Pop::Empty) cpu_relax();
        }
        ready.send(1);
    };
    run_both(cores, produce, consume);
    return static_cast<double>(load.frames) / seconds;
}

/// The same two copies by one thread alone: into slots, and out of them.
double copies_per_second(std::uint64_t frames, int core) {
    pin(core);
    constexpr std::size_t kSlots = 256;
    std::vector<std::byte> slots(kSlots * (kFrameBytesMax + kLineBytes));
    std::vector<std::byte> source(kFrameBytesMax);
    std::vector<std::byte> sink(kFrameBytesMax);
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < frames; ++i) {
        std::byte* slot = slots.data() + i % kSlots * (kFrameBytesMax + kLineBytes);
        std::memcpy(slot, source.data(), kFrameBytesMax);
        asm volatile("" : : "r"(slot) : "memory");  // the copies may not be joined
        std::memcpy(sink.data(), slot, kFrameBytesMax);
        asm volatile("" : : "r"(sink.data()) : "memory");
    }
    return static_cast<double>(frames) /
           std::chrono::duration<double>(Clock::now() - start).count();
}

struct Rate {
    std::string name;
    std::function<double()> measure;
    double unit = 1;
    const char* unit_name = "";
    std::vector<double> values;
};

std::vector<Rate> rates(Cores cores) {
    std::vector<Rate> rows;
    const auto message_rate = [&](const char* name, std::uint64_t batch, bool rings) {
        rows.push_back(
            {name,
             [=] {
                 return frames_per_second({kMessageBytes, kMessages, batch, rings}, cores);
             },
             1e-6,
             "M/s",
             {}});
    };
    message_rate("64 B, each published", 1, false);
    message_rate("64 B, batches of 16", 16, false);
    message_rate("64 B, batches of 64", 64, false);
    message_rate("64 B, each published and rung", 1, true);
    message_rate("64 B, batches of 16, each rung", 16, true);
    constexpr double kGigabytes = kFrameBytesMax * 1e-9;
    rows.push_back({"8 KiB through the ring, in and out",
                    [=] {
                        return frames_per_second({kFrameBytesMax, kFrames, 4, true}, cores);
                    },
                    kGigabytes,
                    "GB/s",
                    {}});
    rows.push_back({"8 KiB, the same two copies on one core",
                    [=] { return copies_per_second(kFrames, cores.here); },
                    kGigabytes,
                    "GB/s",
                    {}});
    return rows;
}

/// The goals of the project for a machine with two cores.
void print_goals(const std::vector<Latency>& spinning,
                 const std::vector<Latency>& asleep,
                 const std::vector<Latency>& one_core,
                 const std::vector<Rate>& rates) {
    const auto goal = [](const char* what, double is, double limit, bool at_least) {
        const bool met = at_least ? is >= limit : is <= limit;
        std::printf("  %-50s %9.3f, goal %s %7.3f: %s\n", what, is, at_least ? ">=" : "<=", limit,
                    met ? "met" : "MISSED");
    };
    std::printf("\ngoals\n");
    goal("64 B spinning, p50 us", median(spinning[0].p50), 0.5, false);
    goal("64 B spinning, p99 us", median(spinning[0].p99), 1.0, false);
    goal("64 B on one core, p50 us", median(one_core[0].p50), 3.0, false);
    goal("idle wake, p50 us against eventfd + 10 %", median(asleep[0].p50),
         1.1 * median(asleep[1].p50), false);
    goal("64 B in batches of 16, M/s", median(rates[1].values) * 1e-6, 10, true);
    goal("8 KiB frames, GB/s", median(rates[5].values) * rates[5].unit, 3, true);
}

int run(int rounds, Cores two) {
    const Cores one{two.here, two.here};
    std::vector<Latency> spinning;
    spinning.push_back(latency<RingLink>("ring and doorbell", two, kSpinTrips, 1s));
    spinning.push_back(latency<RawLineLink>("raw cache line", two, kSpinTrips));
    std::vector<Latency> asleep;
    asleep.push_back(latency<RingLink>("ring and doorbell", two, kSleepTrips, 0us));
    asleep.push_back(latency<EventLink>("eventfd", two, kSleepTrips));
    asleep.push_back(latency<SocketLink>("unix socket pair", two, kSleepTrips));
    asleep.push_back(latency<BoostLink>("Boost.Interprocess message_queue", two, kSleepTrips));
    std::vector<Latency> one_core;
    one_core.push_back(latency<RingLink>("ring and doorbell", one, kOneCoreTrips, 0us));
    one_core.push_back(latency<EventLink>("eventfd", one, kOneCoreTrips));
    one_core.push_back(latency<SocketLink>("unix socket pair", one, kOneCoreTrips));
    one_core.push_back(latency<BoostLink>("Boost.Interprocess message_queue", one, kOneCoreTrips));
    std::vector<Rate> streams = rates(two);

    for (int round = 0; round < rounds; ++round) {
        for (std::vector<Latency>* rows : {&spinning, &asleep, &one_core}) {
            for (Latency& row : *rows) measure(row);
        }
        for (Rate& row : streams) row.values.push_back(row.measure());
        std::fprintf(stderr, "round %d of %d\n", round + 1, rounds);
    }
    std::printf("one way = half a round trip, 64 B, cores %d and %d, %d rounds, medians of them\n",
                two.here, two.there, rounds);
    print("both ends spin, a core each", spinning);
    print("both ends sleep, a core each", asleep);
    print("both ends on one core", one_core);
    std::printf("\n%-44s %9s        %s\n", "throughput, a core each", "median", "of the rounds");
    for (const Rate& row : streams) {
        std::printf("  %-42s %9.2f %-4s   %7.2f .. %.2f\n", row.name.c_str(),
                    median(row.values) * row.unit, row.unit_name,
                    percentile(row.values, 0) * row.unit, percentile(row.values, 1) * row.unit);
    }
    std::printf("  ring over copies alone: %.2f\n",
                median(streams[5].values) / median(streams[6].values));
    print_goals(spinning, asleep, one_core, streams);
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    int rounds = 7;
    Cores cores{0, 1};
    for (int i = 1; i < count; i += 2) {
        const std::string_view name = arguments[i];
        const char* value = i + 1 < count ? arguments[i + 1] : "";
        if (name == "--rounds" && std::atoi(value) > 0) {
            rounds = std::atoi(value);
        } else if (name != "--cores" ||
                   std::sscanf(value, "%d,%d", &cores.here, &cores.there) != 2) {
            std::fprintf(stderr, "usage: bench_ring [--rounds N] [--cores A,B]\n");
            return 2;
        }
    }
    return run(rounds, cores);
}
