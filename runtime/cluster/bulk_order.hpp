// BulkOrder: keeps the order between the two connections of an agent.
//
// A long Begin travels on a connection of its own, so that tokens of other requests pass it. What
// follows it for the same stage must not: the conductor sends a mark on the first connection, and
// the agent holds all that comes behind it for that stage until as many Begins have come as the
// mark says. Other stages do not wait. A further mark holds what is held already too: no Begin
// waits for a frame. Pure; bounded by the windows of the edges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "ipc/remote/node_frames.hpp"

namespace paceline {

class BulkOrder {
public:
    /// A frame with the bytes that it borrows.
    struct Held {
        remote::Frame frame;
        std::vector<std::byte> bytes = {};

        explicit Held(const remote::Frame& from) : frame{from} {
            if (auto* edge = std::get_if<remote::EdgeFrame>(&frame)) keep(edge->payload);
            if (auto* part = std::get_if<remote::TensorPart>(&frame)) keep(part->bytes);
        }
        Held(Held&&) = default;  // moved, never copied: the frame refers to its own bytes
        Held& operator=(Held&&) = default;

    private:
        void keep(std::span<const std::byte>& borrowed) {
            bytes.assign(borrowed.begin(), borrowed.end());
            borrowed = bytes;
        }
    };

    void mark(const remote::BulkMark& mark) { stages_[mark.who].wanted = mark.begins; }
    /// Whether what comes now for `stage` is to be held.
    [[nodiscard]] bool holds(remote::StageKey stage) const {
        const auto found = stages_.find(stage);
        return found != stages_.end() && found->second.come < found->second.wanted;
    }
    /// Whether it holds for any stage.
    [[nodiscard]] bool holds_any() const {
        return std::any_of(stages_.begin(), stages_.end(),
                           [](const auto& each) { return each.second.come < each.second.wanted; });
    }
    void hold(remote::StageKey stage, const remote::Frame& frame) {
        stages_[stage].held.emplace_back(frame);
    }
    /// A Begin has come on the second connection, and was passed on: what may follow now, in order.
    [[nodiscard]] std::deque<Held> arrived(remote::StageKey stage) {
        State& state = stages_[stage];
        ++state.come;
        if (state.come < state.wanted) return {};
        return std::exchange(state.held, {});
    }
    void forget(remote::StageKey stage) { stages_.erase(stage); }

private:
    struct State {
        std::uint64_t wanted = 0;
        std::uint64_t come = 0;
        std::deque<Held> held;
    };
    std::map<remote::StageKey, State> stages_;
};

}  // namespace paceline
