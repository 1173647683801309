// measure_hops(): one message from process to process, as the stages pass them: through a ring,
// with a doorbell, the receiver asleep; and the bytes of a batch's hidden states beside it.
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/spsc_ring.hpp"
#include "launch/simulate/cost_measure.hpp"
#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/cost_rows.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kFrame = 1;
constexpr std::uint32_t kFrameBytes = 512;  // a usual batch, verdict or proposal
constexpr std::array kRules = {KindRule{kFrame, 1, kFrameBytes, Urgency::Normal}};
constexpr int kTrips = 2000;
constexpr int kMisses = 100;  // of 100 ms each: the other end is gone

/// One direction: a ring and its consumer's doorbell, mapped before the fork for both.
struct Line {
    static Result<Line> make() {
        RingOptions options;
        options.payload_bytes = kFrameBytes;
        Result<ShmFile> ring = create_ring("hop", options);
        Result<ShmFile> bell = Doorbell::create("hop");
        if (!ring) return ring.error();
        if (!bell) return bell.error();
        const auto map = [](const ShmFile& file) { return ShmRegion::attach(file.fd(), 1); };
        std::array rings{map(ring.value()), map(ring.value())};
        std::array bells{map(bell.value()), map(bell.value())};
        for (const auto& region : rings)
            if (!region) return region.error();
        for (const auto& region : bells)
            if (!region) return region.error();
        Result<RingProducer> out =
            RingProducer::attach(std::move(rings[0]).value(), Epoch{1}, kRules);
        Result<RingConsumer> in =
            RingConsumer::attach(std::move(rings[1]).value(), Epoch{1}, kRules);
        Result<Doorbell> peer_bell = Doorbell::attach(std::move(bells[0]).value());
        Result<Doorbell> own_bell = Doorbell::attach(std::move(bells[1]).value());
        if (!out) return out.error();
        if (!in) return in.error();
        if (!peer_bell) return peer_bell.error();
        if (!own_bell) return own_bell.error();
        return Line{std::move(out).value(), std::move(in).value(), std::move(peer_bell).value(),
                    std::move(own_bell).value()};
    }

    bool send() {
        const std::array<std::byte, kFrameBytes> bytes{};
        if (out.try_push(kFrame, bytes) != Push::Ok) return false;
        peer_bell.ring();
        return true;
    }
    bool receive() {
        std::array<std::byte, kFrameBytes> bytes{};
        int misses = 0;
        while (!own_bell.wait([this] { return in.has_frame(); }, {}, Doorbell::kSleepMax)) {
            if (++misses == kMisses) return false;
        }
        return in.try_pop(bytes).outcome == Pop::Frame;
    }

    RingProducer out;
    RingConsumer in;
    Doorbell peer_bell;
    Doorbell own_bell;
};

/// Half of a round trip; negative if the other end was lost.
double hop_seconds(Line& there, Line& back) {
    const pid_t child = ::fork();
    if (child < 0) return -1.0;
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < kTrips; ++i) {
            if (!there.receive() || !back.send()) ::_exit(1);
        }
        ::_exit(0);
    }
    std::vector<double> trips;
    bool lost = false;
    for (int i = 0; i < kTrips && !lost; ++i) {
        const auto begin = Clock::now();
        lost = !there.send() || !back.receive();
        trips.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (lost) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    return lost || status != 0 ? -1.0 : median(std::move(trips)) / 2;
}

double copy_seconds(std::size_t bytes) {
    const std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes);
    return CostRows::median_of(5, 1e-4, [&] {
        const auto begin = Clock::now();
        std::memcpy(to.data(), from.data(), bytes);
        return std::chrono::duration<double>(Clock::now() - begin).count();
    });
}

}  // namespace

Result<std::vector<CostRecord>> measure_hops(int dim, const CostPlan& plan) {
    Result<Line> there = Line::make();
    if (!there) return there.error();
    Result<Line> back = Line::make();
    if (!back) return back.error();
    const double hop = hop_seconds(there.value(), back.value());
    if (hop < 0) return Error{Errc::System, "the process at the other end of a hop was lost"};
    std::vector<CostRecord> records;
    for (const int rows : plan.rows) {
        const std::size_t bytes =
            static_cast<std::size_t>(rows) * static_cast<std::size_t>(dim) * sizeof(float);
        records.push_back({.stage = "hop",
                           .fingerprint = kNoModel,
                           .rows = static_cast<std::uint32_t>(rows),
                           .seconds = hop + copy_seconds(bytes)});
    }
    return records;
}

}  // namespace paceline
