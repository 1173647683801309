// A faulty peer: a second process writes random bytes into a ring and pool in use while this one
// continues to use them. This process must not crash, read out of range or accept invalid values.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "tests/unit/ipc/seeded_random.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kTime = 2s;
constexpr std::uint16_t kData = 1;
constexpr std::uint16_t kUrgent = 2;
constexpr std::array kRules = {KindRule{kData, 1, 64, Urgency::Normal},
                               KindRule{kUrgent, 8, 8, Urgency::Urgent}};

ShmRegion map(const ShmFile& file) {
    return ShmRegion::attach(file.fd(), 1).value();
}

/// Killed and reaped when it goes out of scope.
class Rogue {
public:
    /// Scribbles over `bytes` of the file from `from` on, at random, until it is killed: mostly
    /// into the first `counts` of them, where the counts and states lie.
    Rogue(const ShmFile& file, std::size_t from, std::size_t counts) {
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ > 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const ShmRegion region = map(file);
        const std::span<std::byte> memory = region.bytes().subspan(from);
        SeededRandom random{static_cast<std::uint64_t>(from) + 1};
        for (;;) {
            const std::size_t range = random.one_in(3) ? counts : memory.size();
            const std::size_t at = random.below(static_cast<std::uint32_t>(range)) & ~7ULL;
            const std::uint64_t value = random.one_in(2) ? random.below(8) : random.next();
            std::memcpy(memory.data() + at, &value, 1U << random.below(4));
            // Not all the time: what is valid must get a chance to be taken.
            for (std::uint32_t i = random.below(2000); i > 0; --i) cpu_relax();
        }
    }
    Rogue(const Rogue&) = delete;
    Rogue& operator=(const Rogue&) = delete;
    ~Rogue() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }

private:
    pid_t pid_ = -1;
};

struct Tally {
    std::uint64_t frames = 0;
    std::uint64_t empty = 0;
    std::uint64_t corrupt = 0;
    std::uint64_t refused = 0;  // the producer found the counts impossible
    std::uint64_t wrong = 0;
};

/// What a pop may be: a frame that its rule allows, in our buffer; nothing; or corrupt for good.
void verify(RingConsumer& ring, Tally& tally) {
    std::array<std::byte, 64> buffer{};
    const Popped popped = ring.try_pop(buffer);
    if (popped.outcome == Pop::Empty) ++tally.empty;
    if (popped.outcome == Pop::Corrupt) {
        ++tally.corrupt;
        tally.wrong += ring.fault().ok() || ring.try_pop(buffer).outcome != Pop::Corrupt;
    }
    if (popped.outcome != Pop::Frame) return;
    ++tally.frames;
    const KindRule* rule = find_rule(kRules, popped.kind);
    tally.wrong += rule == nullptr || popped.payload.data() != buffer.data() ||
                   popped.payload.size() < rule->bytes_min ||
                   popped.payload.size() > rule->bytes_max;
}

}  // namespace

TEST_CASE("a process that scribbles over a live ring gets frames, nothing or corrupt out of it") {
    RingOptions options;
    options.slots = 8;
    options.urgent_slots = 2;
    options.payload_bytes = 64;
    const ShmFile file = create_ring("rogue", options).value();
    // Not over the constants: they are not read again once the ring is attached, and here it is
    // attached anew after each corruption.
    const Rogue rogue{file, kLineBytes, 3 * kLineBytes};
    Tally tally;
    std::optional<RingProducer> producer;
    std::optional<RingConsumer> consumer;
    const std::array<std::byte, 64> payload{};
    const auto end = Clock::now() + kTime;
    // Longer where both share a busy core.
    const auto goes_on = [&] {
        return Clock::now() < end || tally.frames <= 100 || tally.corrupt == 0;
    };
    for (std::uint64_t i = 0; i % 64 != 0 || goes_on(); ++i) {
        if (!producer || !producer->fault().ok()) {
            tally.refused += producer.has_value() ? 1 : 0;
            producer.reset();
            auto attached = RingProducer::attach(map(file), Epoch{1}, kRules);
            if (attached.ok()) producer = std::move(attached).value();
        }
        if (!consumer || !consumer->fault().ok()) {
            consumer = RingConsumer::attach(map(file), Epoch{1}, kRules).value();
        }
        if (producer) {
            const bool urgent = i % 5 == 0;
            (void)producer->try_push(urgent ? kUrgent : kData,
                                     std::span{payload}.first(urgent ? 8 : 1 + i % 64));
            if (i % 7 == 0) producer->want_room();
        }
        verify(*consumer, tally);
        (void)consumer->take_room_wanted();
    }
    MESSAGE(tally.frames << " frames, " << tally.empty << " times empty, " << tally.corrupt
                         << " times corrupt, " << tally.refused << " times the producer's");
    CHECK(tally.wrong == 0);
}

TEST_CASE("a process that scribbles over a live pool makes its ends err, never read elsewhere") {
    constexpr std::uint32_t kSlots = 4;
    constexpr std::size_t kSlotBytes = 512;
    const ShmFile file = create_pool("rogue", kSlots, kSlotBytes).value();
    const Rogue rogue{file, kLineBytes, kLineBytes + kSlots * sizeof(PoolSlotState)};
    std::uint64_t views = 0;
    std::uint64_t refused = 0;
    std::uint64_t faults = 0;
    std::uint64_t outside = 0;
    SeededRandom random{5};
    std::optional<TensorProducer> producer;
    TensorConsumer consumer = TensorConsumer::attach(map(file)).value();
    const auto end = Clock::now() + kTime / 2;
    // Longer where both share a busy core.
    const auto goes_on = [&] { return Clock::now() < end || std::min(views, refused) <= 100; };
    for (std::uint64_t i = 0; i % 64 != 0 || goes_on(); ++i) {
        if (!producer || !producer->fault().ok()) {
            faults += producer.has_value() ? 1 : 0;
            producer = TensorProducer::attach(map(file)).value();
        }
        PoolRef slot{random.below(kSlots + 1), random.below(4)};
        if (const std::optional<PoolRef> own = producer->acquire()) {
            std::memset(producer->bytes(*own).data(), 1, kSlotBytes);
            producer->publish(*own, 1 + i % kSlotBytes);
            slot = *own;
        }
        const auto view = consumer.view(slot, 1 + i % kSlotBytes);
        if (view.ok()) {
            ++views;
            // Each end maps the file for itself, so only the size can be held against it.
            outside += view.value().size() > kSlotBytes;
            std::array<std::byte, kSlotBytes> copy{};
            std::memcpy(copy.data(), view.value().data(), view.value().size());
        } else {
            ++refused;
        }
        consumer.release(slot);
        (void)consumer.take_room_wanted();
    }
    MESSAGE(views << " views, " << refused << " refused, " << faults << " faults of the producer");
    CHECK(outside == 0);
}

TEST_CASE("a process that scribbles over a doorbell keeps no sleeper asleep") {
    const ShmFile file = Doorbell::create("rogue").value();
    const Rogue rogue{file, kLineBytes, kLineBytes};
    Doorbell bell = Doorbell::attach(map(file)).value();
    for (int i = 0; i < 50; ++i) {
        CHECK_FALSE(bell.wait([] { return false; }, 0us, 5ms));
        bell.ring();
    }
}
