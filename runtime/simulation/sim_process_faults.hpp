// SimProcessFaults: the faults of one simulated incarnation, as sim_fault_injector.hpp plants them,
// and their effects.
//
// Frozen: it does nothing until the end of the freeze and then continues where it was, even if it
// has been replaced. Doomed: it has crashed inside a handler; the handler still runs to its end,
// but what it sends is dropped. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>

#include "runtime/simulation/sim_site.hpp"

namespace paceline {

class SimProcessFaults {
public:
    explicit SimProcessFaults(const SimIdentity& self) : self_{self} {}

    void freeze(SimTime until) {
        frozen_until_ = std::max(frozen_until_, until);
        ++freezes_;
        self_.push(frozen_until_, SimEventKind::Thaw);
    }
    [[nodiscard]] bool is_frozen() const { return self_.now() < frozen_until_; }
    [[nodiscard]] SimTime frozen_until() const { return frozen_until_; }
    [[nodiscard]] std::uint64_t freezes() const { return freezes_; }

    void crash_after_sends(std::uint32_t sends) { sends_left_ = sends; }
    void sent() {
        if (sends_left_ && (*sends_left_)-- <= 1) doomed_ = true;
    }
    [[nodiscard]] bool is_doomed() const { return doomed_; }

    void slow_down(std::uint32_t factor, SimTime until) {
        slow_ = factor;
        slow_until_ = until;
    }
    /// How long a job takes that begins now.
    [[nodiscard]] SimTime slowed(SimTime takes) const {
        return self_.now() < slow_until_ ? takes * slow_ : takes;
    }

    /// A kill has not reached it: it counts as gone, but it is not.
    void linger() { lingers_ = true; }
    [[nodiscard]] bool lingers() const { return lingers_; }

    void fail_allocation(std::uint32_t nth) { allocation_fails_ = nth; }
    [[nodiscard]] bool ran_out_of_memory() const { return allocation_failed_; }
    /// Calls into the host; the allocation that was chosen fails.
    template <class Call>
    void guard(Call call) {
        const auto set_left = self_.site.options.allocations;
        const bool arms = allocation_fails_.has_value() && set_left != nullptr;
        if (arms) set_left(*allocation_fails_);
        try {
            call();
        } catch (const std::bad_alloc&) {
            // Outside of a handler nothing could report Failed.
            allocation_failed_ = true;
            doomed_ = true;
        }
        if (!arms) return;
        const std::int64_t left = set_left(-1);
        if (left >= 0) {
            allocation_fails_ = static_cast<std::uint32_t>(left);
            return;
        }
        allocation_fails_.reset();
        allocation_failed_ = true;
    }

private:
    const SimIdentity& self_;
    SimTime frozen_until_{0};
    std::uint64_t freezes_ = 0;
    std::optional<std::uint32_t> sends_left_;
    bool doomed_ = false;
    std::uint32_t slow_ = 1;
    SimTime slow_until_{0};
    bool lingers_ = false;
    std::optional<std::uint32_t> allocation_fails_;
    bool allocation_failed_ = false;
};

}  // namespace paceline
