// RelayWindow: how many frames of a relayed edge may be on their way.
//
// An edge between two machines is two rings with a connection between them. The sender takes a
// frame out of its ring only if the receiver is sure to have a place for it: at most `slots` frames
// are sent beyond those that were put into the receiver's ring, and the last `urgent_slots` of
// these are for urgent frames, as in a ring. So nothing piles up at the receiver, one edge never
// stops another, and both rings keep the reserve with which a producer of verdicts goes on.
// The receiver tells of places in portions: fewer messages, and never so few that a sender waits
// for a word that does not come. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ipc/base/result.hpp"
#include "ipc/transport/kind_rule.hpp"

namespace paceline {

struct WindowSize {
    std::uint64_t slots = 0;
    std::uint64_t urgent_slots = 0;  // < slots
};

class SendWindow {
public:
    explicit SendWindow(WindowSize size) : size_{size} {}

    [[nodiscard]] bool has_room(Urgency urgency) const {
        const std::uint64_t reserved = urgency == Urgency::Urgent ? 0 : size_.urgent_slots;
        return sent_ - taken_ + reserved < size_.slots;
    }
    void note_sent() { ++sent_; }
    /// `total` frames were put into the receiver's ring since the edge began. Errc::Protocol for
    /// more than were sent; a number that came before changes nothing.
    [[nodiscard]] Status note_taken(std::uint64_t total) {
        if (total > sent_)
            return Error{Errc::Protocol, "more frames of an edge were taken than were sent"};
        taken_ = std::max(taken_, total);
        return {};
    }
    [[nodiscard]] std::uint64_t in_flight() const { return sent_ - taken_; }

private:
    WindowSize size_;
    std::uint64_t sent_ = 0;
    std::uint64_t taken_ = 0;
};

class ReceiveWindow {
public:
    explicit ReceiveWindow(WindowSize size)
        : size_{size}, portion_{std::max<std::uint64_t>(1, (size.slots - size.urgent_slots) / 4)} {}

    /// A frame has come. Errc::Protocol if the sender had no room for it.
    [[nodiscard]] Status note_received() {
        if (received_ - put_ >= size_.slots)
            return Error{Errc::Protocol, "a frame of an edge came that has no place"};
        ++received_;
        return {};
    }
    /// One was put into the ring.
    void note_put() { ++put_; }
    /// What the sender is to be told now, if anything; told() when that was sent.
    [[nodiscard]] std::optional<std::uint64_t> news() const {
        if (put_ - told_ < portion_) return std::nullopt;
        return put_;
    }
    void told(std::uint64_t total) { told_ = total; }
    [[nodiscard]] std::uint64_t waiting() const { return received_ - put_; }

private:
    WindowSize size_;
    std::uint64_t portion_;
    std::uint64_t received_ = 0;
    std::uint64_t put_ = 0;
    std::uint64_t told_ = 0;
};

}  // namespace paceline
