// BulkOrder: keeps the order between the two connections of an agent.
//
// A long Begin travels on a connection of its own, so that tokens of other requests pass it. What
// follows it for the same stage must not: the conductor sends a mark on the first connection, and
// the agent holds all that comes behind it for that stage until as many Begins have come as the
// mark says. Other stages do not wait. A further mark holds what is held already too: no Begin
// waits for a frame. Memory that a held message names is dropped behind it. Pure; bounded by the
// windows of the edges.
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
    /// Of the memories that are to be dropped, those that no held message names. The others stay
    /// here; ask again, without `more`, when what arrived() returned was handled.
    [[nodiscard]] remote::DropMemory to_drop(const remote::DropMemory& more = {}) {
        dropping_.insert(dropping_.end(), more.ids.begin(), more.ids.end());
        const auto free = std::stable_partition(dropping_.begin(), dropping_.end(),
                                                [this](std::uint64_t id) { return names(id); });
        remote::DropMemory now{{free, dropping_.end()}};
        dropping_.erase(free, dropping_.end());
        return now;
    }
    void forget(remote::StageKey stage) { stages_.erase(stage); }

private:
    struct State {
        std::uint64_t wanted = 0;
        std::uint64_t come = 0;
        std::deque<Held> held;
    };
    /// Whether a held message names this memory.
    [[nodiscard]] bool names(std::uint64_t id) const {
        const auto in_frame = [id](const Held& held) {
            const auto* control = std::get_if<remote::StageControl>(&held.frame);
            return control != nullptr && std::find(control->files.begin(), control->files.end(),
                                                   id) != control->files.end();
        };
        return std::any_of(stages_.begin(), stages_.end(), [&](const auto& each) {
            const std::deque<Held>& held = each.second.held;
            return std::any_of(held.begin(), held.end(), in_frame);
        });
    }

    std::map<remote::StageKey, State> stages_;
    std::vector<std::uint64_t> dropping_;  // memories that a held message names
};

}  // namespace paceline
