#include "ipc/transport/doorbell.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <linux/futex.h>
#include <memory>
#include <new>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kBellMagic = 0x4c4c454245434150ULL;  // "PACEBELL"
constexpr std::uint32_t kBellLayoutVersion = 1;

/// Not FUTEX_PRIVATE: the word is shared between processes.
long futex(std::atomic<std::uint32_t>* word,
           int operation,
           std::uint32_t value,
           const timespec* limit) {
    static_assert(sizeof(*word) == sizeof(std::uint32_t), "the kernel reads 32 bits");
    return ::syscall(SYS_futex, word, operation, value, limit, nullptr, 0);
}

}  // namespace

Result<ShmFile> Doorbell::create(const std::string& name) {
    DoorbellHeader header{};
    header.magic = kBellMagic;
    header.layout_version = kBellLayoutVersion;
    return ShmFile::create(name, sizeof header, std::as_bytes(std::span{&header, 1}));
}

Result<Doorbell> Doorbell::attach(ShmRegion region) {
    if (region.bytes().size() < sizeof(DoorbellHeader)) {
        return Error{Errc::Protocol,
                     fmt::format("a doorbell's memory has {} bytes", region.bytes().size())};
    }
    auto* header = std::launder(reinterpret_cast<DoorbellHeader*>(region.bytes().data()));
    if (header->magic != kBellMagic || header->layout_version != kBellLayoutVersion) {
        return Error{Errc::Protocol, "a doorbell's header has the wrong magic number or version"};
    }
    return Doorbell{std::move(region), header, nullptr};
}

Doorbell Doorbell::local() {
    auto own = std::make_shared<DoorbellHeader>();
    DoorbellHeader* header = own.get();
    return Doorbell{ShmRegion{}, header, std::move(own)};
}

void Doorbell::ring() {
    // Release pairs with the acquire of the consumer's exchange in wait(): if that comes later,
    // it sees what was published before this. An exchange and not a load: a load could be
    // answered with an old value while the consumer falls asleep.
    if (header_->sleeping.exchange(0, std::memory_order_acq_rel) != 0) {
        futex(&header_->sleeping, FUTEX_WAKE, 1, nullptr);
    }
}

void Doorbell::announce() {
    // Release pairs with the consumer's acquire in announced().
    header_->announced.fetch_add(1, std::memory_order_release);
    ring();
}

bool Doorbell::arm() {
    // Acquire pairs with the release of a producer's exchange in ring(): if it came first, what it
    // had published is visible to the ready() that follows; if it comes second, it wakes us.
    header_->sleeping.exchange(1, std::memory_order_acq_rel);
    fault_point(FaultPoint::BellArmed);
    return !planted(PlantedBug::NoRecheckBeforeSleep);
}

void Doorbell::sleep(Micros limit) {
    if (kFaultsCompiledIn && slept_for_test(header_->sleeping)) return;
    const auto micros = std::min(limit, kSleepMax).count();
    const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(micros) * 1000};
    // Returns at once if a producer has taken `sleeping` meanwhile; early on a signal.
    futex(&header_->sleeping, FUTEX_WAIT, 1, &time);
}

}  // namespace paceline
