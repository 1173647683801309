// SimLine: one connection between the conductor's machine and another one, in a simulated world, as
// far as it says when something that was sent arrives. SimRoute: the way of an edge between two
// incarnations: none, one line, or two by way of the conductor's machine.
//
//   conductor's machine  <===== Up ======  another machine
//                        ====== Down ====>
//
// A cut holds what is on its way; nothing is lost while both ends are open. What has not arrived
// when the receiving end closes never arrives, and nothing is sent from an end that is closed.
// Plain values, shared by all that use the connection. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "ipc/base/ids.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

/// Of what never arrives.
inline constexpr SimTime kSimNever = SimTime::max();

enum class SimWay : std::uint8_t { Up, Down };

struct SimLine {
    SimLine(std::uint32_t of_place, SimTime of_frame) : place{of_place}, delay{of_frame} {}
    SimLine(const SimLine&) = delete;
    SimLine& operator=(const SimLine&) = delete;

    /// When something arrives that would at `planned`, were nothing held.
    [[nodiscard]] SimTime arrival(SimWay way, SimTime planned) const {
        if (planned == kSimNever) return kSimNever;
        const SimTime at = std::max(planned, way == SimWay::Up ? up_held : down_held);
        const std::optional<SimTime>& closed = way == SimWay::Up ? conductor_end : agent_end;
        return closed && at > *closed ? kSimNever : at;
    }
    /// Whether the sending end is open.
    [[nodiscard]] bool takes(SimWay way) const {
        return way == SimWay::Up ? !agent_end : !conductor_end;
    }

    std::uint32_t place;  // of the conductor's places for machines, from 1; 0: none yet
    SimTime delay;
    Epoch node_epoch{};
    SimTime up_held{0};  // nothing arrives before
    SimTime down_held{0};
    std::optional<SimTime> conductor_end{};  // when it was closed
    std::optional<SimTime> agent_end{};
    bool served = false;      // the answer to the Hello has come: stages may have been started
    bool was_frozen = false;  // its machine, so that its lease may have ended late
    std::array<CancelBoard::Word, kCancelLines> board{};  // of the machine, for this connection
};
using SimLinePtr = std::shared_ptr<SimLine>;

class SimRoute {
public:
    /// On one machine.
    SimRoute() = default;
    SimRoute(SimLinePtr from, SimLinePtr to) {
        if (from == to) return;
        up_ = std::move(from);
        down_ = std::move(to);
    }

    /// When a message arrives that is sent now and would at `planned` on one machine.
    [[nodiscard]] SimTime sent(SimTime planned) const {
        const bool taken =
            (!up_ || up_->takes(SimWay::Up)) && (!down_ || down_->takes(SimWay::Down));
        if (!taken) return kSimNever;
        return planned + (up_ ? up_->delay : SimTime{0}) + (down_ ? down_->delay : SimTime{0});
    }
    /// When one of those arrives, as things are now.
    [[nodiscard]] SimTime arrival(SimTime planned) const {
        if (up_) planned = up_->arrival(SimWay::Up, planned);
        if (down_) planned = down_->arrival(SimWay::Down, planned);
        return planned;
    }
    /// When news that are sent now arrive at the other end.
    [[nodiscard]] SimTime back(SimTime planned) const {
        const SimRoute reverse{down_, up_};
        return reverse.arrival(reverse.sent(planned));
    }
    [[nodiscard]] bool is_relayed() const { return up_ || down_; }

private:
    SimLinePtr up_;
    SimLinePtr down_;
};

}  // namespace paceline
