// Relay: all edges between this machine and one other.
//
// The conductor has one for each other machine, and the agent there has its counterpart; both know
// an edge by the number that the conductor gave it. Frames of an edge that was dropped are dropped.
// Threads: one, that of the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <variant>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"
#include "runtime/cluster/frame_port.hpp"
#include "runtime/cluster/relay_edge.hpp"

namespace paceline {

class Relay {
public:
    using End = std::variant<RelayOut, RelayIn>;
    /// The local stage of an edge broke its channel. The edge is dropped already.
    using OnBroken = std::function<void(std::uint32_t edge, const Error& error)>;

    Relay(FramePort& port, OnBroken on_broken) : port_{port}, on_broken_{std::move(on_broken)} {}

    void add(std::uint32_t edge, End end) { edges_.insert_or_assign(edge, std::move(end)); }
    void drop(std::uint32_t edge) { edges_.erase(edge); }
    void clear() { edges_.clear(); }

    /// Moves what can be moved now, up to a bound; whether it stopped there, so that the caller has
    /// to call again after other work of the thread. `before_send` is called when frames were taken
    /// out of rings and before they are sent: what caused them can be sent first. It may add and
    /// drop edges.
    bool pump(const std::function<void()>& before_send = {});
    /// Errc::Protocol: the other machine sent what cannot be.
    [[nodiscard]] Status take(const remote::EdgeFrame& frame);
    [[nodiscard]] Status take(const remote::TensorPart& part);
    [[nodiscard]] Status take(const remote::EdgeRoom& room);
    [[nodiscard]] Status take(const remote::TensorFree& free);
    /// Whether room has come since this was last asked: pump().
    [[nodiscard]] bool take_room() { return std::exchange(room_, false); }

private:
    template <class Side>
    [[nodiscard]] Side* find(std::uint32_t edge) {
        const auto found = edges_.find(edge);
        return found == edges_.end() ? nullptr : std::get_if<Side>(&found->second);
    }
    /// Calls `what` for each end of one kind; those for which it returns an error are dropped.
    template <class Side, class What>
    void for_all(What what);
    void put_into_ring(std::uint32_t edge);

    FramePort& port_;
    OnBroken on_broken_;
    std::map<std::uint32_t, End> edges_;
    bool room_ = false;
};

}  // namespace paceline
