// NodeSlot: one other machine as the conductor sees it: the thread of the connections on the one
// side, the supervisor's thread on the other.
//
//   supervisor's thread                        connections' thread
//   RemoteNode --- post(command) ------------> [link, relay, board, lease]
//              <-- take_events(), rings bells -
//
// A command is for the connection of a node epoch, and is dropped if that is over. What the
// supervisor posts is sent before the frames that it causes: the relay takes frames out of the
// rings, then runs the commands that were posted until then, then sends.
// A slot stays when its machine is lost; a machine that returns, or one that takes its place, gets
// the next node epoch.
// Threads: as drawn. The members of each side are called on its thread alone, connected() on any.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "ipc/base/ids.hpp"
#include "ipc/remote/node_frames.hpp"
#include "ipc/transport/doorbell.hpp"
#include "runtime/cluster/board_mirror.hpp"
#include "runtime/cluster/lease.hpp"
#include "runtime/cluster/node_link.hpp"
#include "runtime/cluster/relay.hpp"

namespace paceline {

/// The connection is over; the machine's stages may run until its lease ends.
struct LinkLost {
    std::string why;
};
/// Its lease is over: its stages have ended.
struct LeaseEnded {
    std::string why;
};
/// A machine without stages is there.
struct LinkBack {
    Epoch node_epoch;
};
/// The stage of this machine at a relayed edge broke its channel.
struct EdgeBroken {
    std::uint32_t edge = 0;
    Error error;
};
using NodeEvent = std::variant<LinkLost,
                               LeaseEnded,
                               LinkBack,
                               EdgeBroken,
                               remote::StageReport,
                               remote::StageControl,
                               remote::Counters>;

/// What commands work on.
struct LinkSide {
    explicit LinkSide(remote::ConnectionPtr connection, Relay::OnBroken on_broken)
        : link{std::move(connection)}, relay{link, std::move(on_broken)} {}
    NodeLink link;
    Relay relay;
    std::optional<BoardMirror> board;
};

class NodeSlot {
public:
    using Nanos = std::chrono::nanoseconds;
    using Command = std::function<void(LinkSide& side)>;

    /// `stop_grace`: how long a stopped stage of the machine is waited for.
    NodeSlot(boost::asio::io_context& io, LeaseRules rules, std::chrono::milliseconds stop_grace)
        : io_{io}, rules_{rules}, stop_grace_{stop_grace} {}
    NodeSlot(const NodeSlot&) = delete;
    NodeSlot& operator=(const NodeSlot&) = delete;

    // ---- the supervisor's side ----

    /// The node epoch of the connection, if there is one; what came before is forgotten. First.
    [[nodiscard]] std::optional<Epoch> take_over();
    void post(Epoch node_epoch, Command command);
    [[nodiscard]] std::deque<NodeEvent> take_events();
    /// announce() on it when there are events.
    void wake_with(Doorbell bell);
    [[nodiscard]] std::chrono::milliseconds stop_grace() const { return stop_grace_; }

    // ---- any thread ----

    [[nodiscard]] bool connected() const {
        const std::lock_guard lock{door_};
        return connected_.has_value();
    }

    // ---- the connections' side ----

    /// Takes over a connection on which both ends have said Hello. Precondition: not connected.
    void adopt(std::unique_ptr<LinkSide> side);
    /// The second connection of the adopted one.
    void add_bulk(remote::ConnectionPtr bulk) {
        if (side_) side_->link.add_bulk(std::move(bulk));
    }
    void on_bulk_room() {
        if (side_) side_->link.on_bulk_room();
    }
    /// Another connection is to take the place of the present one, if there is one: that is over
    /// for this reason, though its end has not arrived.
    void replace(const std::string& why);
    /// From a connection; that of an earlier one changes nothing.
    [[nodiscard]] Status on_frame(const LinkSide* from, const remote::Frame& frame);
    void on_end(const LinkSide* from, const Error& error);
    void round();
    [[nodiscard]] bool is_connected() const { return side_ != nullptr; }
    [[nodiscard]] bool is_connected_by(const LinkSide* side) const { return side_.get() == side; }
    /// Whether its stages may still run on a machine that was lost.
    [[nodiscard]] bool is_leased() const { return lease_.has_value(); }
    void on_broken(std::uint32_t edge, const Error& error) { tell(EdgeBroken{edge, error}); }
    /// In order; on_end() follows.
    void close(const std::string& reason);

private:
    struct Posted {
        Epoch node_epoch;
        Command command;
    };
    void run_commands();
    void give_up(const std::string& why);
    void post_round();
    void tell(NodeEvent event);

    boost::asio::io_context& io_;
    LeaseRules rules_;
    const std::chrono::milliseconds stop_grace_;

    std::unique_ptr<LinkSide> side_;
    std::vector<std::unique_ptr<LinkSide>> closing_;
    std::optional<LeaseGranter> lease_;
    Epoch epoch_{0};
    std::string why_;
    bool round_posted_ = false;

    mutable std::mutex door_;  // of what follows
    std::deque<Posted> commands_;
    std::deque<NodeEvent> events_;
    std::optional<Epoch> connected_;  // as the events tell it
    std::optional<Doorbell> wake_;
};

}  // namespace paceline
