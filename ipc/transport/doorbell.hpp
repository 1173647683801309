// Doorbell: how a process sleeps until any of its producers has something for it.
//
// One per CONSUMER process, shared by all of its incoming rings and its control socket, so that
// a stage with several inputs waits once. The consumer spins for a while (never when it was told
// to spin 0: fewer cores than spinners, or a producer on its own core), then sleeps in the
// kernel, always with a limit of at most 100 ms: no lost wake-up and no rogue peer can do worse
// than delay it that long.
//
//   offset 0        128          256
//   +--------------+------------+-------------+
//   | constants    | sleeping   | announced   |
//   +--------------+------------+-------------+
//
// No wake-up is lost: the consumer sets `sleeping` and only then looks for input once more; a
// producer publishes and only then takes `sleeping`. Both are read-modify-writes of one word, so
// one of them comes second and sees what the other did before.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "ipc/base/result.hpp"
#include "ipc/transport/ring_layout.hpp"
#include "ipc/transport/shm_region.hpp"

namespace paceline {

struct DoorbellHeader {
    alignas(kLineBytes) std::uint64_t magic;
    std::uint32_t layout_version;
    // 1 while the consumer sleeps or is about to; the futex word. Set by the consumer, taken by
    // any producer: acq_rel exchanges at both ends.
    alignas(kLineBytes) std::atomic<std::uint32_t> sleeping;
    // Counts control messages put into the control socket. Written by the conductor with release
    // after the write to the socket, read by the consumer with acquire before it handles frames:
    // a data message that was caused by a control message is never handled before it.
    alignas(kLineBytes) std::atomic<std::uint32_t> announced;
};
static_assert(sizeof(DoorbellHeader) == 3 * kLineBytes);

/// Tells the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

class Doorbell {
public:
    using Micros = std::chrono::microseconds;
    static constexpr Micros kSleepMax{100'000};

    [[nodiscard]] static Result<ShmFile> create(const std::string& name);
    [[nodiscard]] static Result<Doorbell> attach(ShmRegion region);
    /// A doorbell between threads of one process.
    [[nodiscard]] static Doorbell local();

    /// Any producer, after it has published. Cheap while the consumer is awake.
    void ring();
    /// The conductor, after it has written to the stage's control socket. Rings too.
    void announce();
    [[nodiscard]] std::uint32_t announced() const {
        return header_->announced.load(std::memory_order_acquire);
    }

    /// The consumer: waits until `ready()` or until `limit` (at most kSleepMax of sleep) is over.
    /// Returns the last answer of ready(). `slept`, if given, is raised when it went to sleep.
    /// A signal ends the wait early.
    template <class Ready>
    bool wait(Ready&& ready, Micros spin, Micros limit, bool* slept = nullptr) {
        if (ready()) return true;
        if (spin.count() > 0 && spin_until(ready, spin)) return true;
        if (limit.count() <= 0) return false;
        bool is_ready = arm() && ready();
        if (!is_ready) {
            if (slept != nullptr) *slept = true;
            sleep(limit);
            is_ready = ready();
        }
        header_->sleeping.store(0, std::memory_order_relaxed);  // only saves producers a wake
        return is_ready;
    }

private:
    explicit Doorbell(ShmRegion region, DoorbellHeader* header, std::shared_ptr<DoorbellHeader> own)
        : region_{std::move(region)}, own_{std::move(own)}, header_{header} {}
    template <class Ready>
    bool spin_until(Ready& ready, Micros spin) {
        const auto end = std::chrono::steady_clock::now() + spin;
        do {
            for (int i = 0; i < 32; ++i) {
                if (ready()) return true;
                cpu_relax();
            }
        } while (std::chrono::steady_clock::now() < end);
        return false;
    }
    /// Says that this consumer is about to sleep. True: look for input once more before.
    [[nodiscard]] bool arm();
    void sleep(Micros limit);

    ShmRegion region_;
    std::shared_ptr<DoorbellHeader> own_;  // of a local doorbell
    DoorbellHeader* header_ = nullptr;
};

}  // namespace paceline
