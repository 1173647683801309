// SimLater: what is to be called at a later time of a simulated world, or when something that was
// sent on a line arrives. Borrows the core. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/simulation/machines/sim_line.hpp"
#include "runtime/simulation/sim_core.hpp"

namespace paceline {

class SimLater {
public:
    using Call = std::function<void()>;

    explicit SimLater(SimCore& core) : core_{core} {}

    void at(SimTime time, Call call) {
        core_.push(time, SimEventKind::Machine, 0, calls_.size());
        calls_.push_back(std::move(call));
    }
    /// When what is sent now on this line arrives, in the order of sending; perhaps never.
    void along(const SimLinePtr& line, SimWay way, Call call) {
        arrive(line, way, core_.now + line->delay, std::move(call));
    }
    /// The event Machine.
    void run(std::uint64_t number) {
        const Call call = std::exchange(calls_[number], {});  // it may add others
        call();
    }

private:
    /// A cut that begins while it is on its way holds it longer.
    void arrive(const SimLinePtr& line, SimWay way, SimTime planned, Call call) {
        const SimTime arrives = line->arrival(way, planned);
        if (arrives == kSimNever) return;
        at(arrives, [this, line, way, planned, call = std::move(call)] {
            const SimTime now_arrives = line->arrival(way, planned);
            if (now_arrives == kSimNever) return;
            if (now_arrives > core_.now) return arrive(line, way, planned, call);
            call();
        });
    }

    SimCore& core_;
    std::vector<Call> calls_;
};

}  // namespace paceline
