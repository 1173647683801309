// Guest: a connection of the hub that has not said which machine it is of, or has no slot; and why
// its machine cannot take part.
//
// Owned by the callbacks of its connection. Threads: one, that of the connections.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/remote/node_frames.hpp"
#include "runtime/cluster/node_slot.hpp"

namespace paceline {

struct Guest {
    std::unique_ptr<LinkSide> side;  // until a slot takes it over
    LinkSide* raw = nullptr;
    NodeSlot* slot = nullptr;
    remote::Hello hello{};
    std::weak_ptr<Guest> first{};  // of a second connection: the one that it belongs to
    std::chrono::steady_clock::time_point last_frame{};
    bool is_bulk = false;
    bool is_closing = false;

    /// Whether its agent has said Hello and counts as connected.
    [[nodiscard]] bool is_agent() const {
        return raw != nullptr && !is_bulk && !is_closing && !hello.node.empty() &&
               (slot == nullptr || slot->is_connected_by(raw));
    }
};
using GuestPtr = std::shared_ptr<Guest>;

struct Objection {
    std::string text;
    bool passes = false;  // with the lease of the agent that has its name or machine: try again
};

/// Why the machine of `guest` cannot take part; nothing: it can. `conductor`: its own Hello.
/// `others`: guests that have said Hello.
[[nodiscard]] std::optional<Objection> objection_to(
    const Guest& guest,
    const remote::Hello& conductor,
    const std::vector<std::weak_ptr<Guest>>& others);

}  // namespace paceline
