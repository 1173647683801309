// NodeLink: the connection between the conductor and one agent, as both ends use it.
//
// Adds to SecureConnection: control frames are never lost while the connection lives (those without
// room wait here, in order), and frames of an older node epoch than the newest seen are dropped. A
// node epoch numbers the connections to one machine: what was sent under an earlier one is about
// stages that have ended.
// Threads: one, that of the connection. No callback comes from within a call.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/remote/secure_connection.hpp"
#include "runtime/cluster/frame_port.hpp"

namespace paceline {

/// Which frames are of the present. Pure.
class NodeEpochs {
public:
    /// Whether a frame of this epoch counts; a newer one makes all before it old.
    [[nodiscard]] bool admit(Epoch epoch) {
        if (epoch < newest_) return false;
        newest_ = epoch;
        return true;
    }
    [[nodiscard]] Epoch newest() const { return newest_; }

private:
    Epoch newest_{};
};

class NodeLink final : public FramePort {
public:
    struct Events {
        /// An error closes the connection with it.
        std::function<Status(const remote::Frame& frame)> on_frame;
        std::function<void(const Error& error)> on_end;
        std::function<void()> on_room;
    };

    explicit NodeLink(remote::ConnectionPtr main) : main_{std::move(main)} {}

    void start(Events events);
    /// Under which frames are sent from now on.
    void set_epoch(Epoch epoch) { epoch_ = epoch; }
    [[nodiscard]] Epoch epoch() const { return epoch_; }
    /// The newest that the other end has sent under.
    [[nodiscard]] Epoch peer_epoch() const { return epochs_.newest(); }

    [[nodiscard]] remote::Sent send(const remote::Frame& frame,
                                    remote::Lane lane,
                                    bool urgent) override;
    /// A control frame, which owns its bytes. A Begin that is too long for the first connection
    /// goes on the second one, and a mark on the first, behind which the agent holds what is for
    /// the same stage (bulk_order.hpp).
    void say(remote::Frame frame);
    /// The second connection, on which both ends have said Hello; what waits for it is sent.
    /// `on_frame` as of start(). Its end is the end of the first one.
    void add_bulk(remote::ConnectionPtr bulk);
    /// For its callbacks, which whoever accepted it has started.
    void on_bulk_room() { flush_bulk(); }
    void close(const std::string& reason);
    [[nodiscard]] bool is_open() const { return open_; }
    [[nodiscard]] std::string peer() const { return main_->peer(); }
    [[nodiscard]] const remote::ConnectionPtr& connection() const { return main_; }

private:
    void flush();
    void flush_bulk();

    remote::ConnectionPtr main_;
    Events events_;
    NodeEpochs epochs_;
    Epoch epoch_{};
    std::deque<remote::Frame> waiting_;
    remote::ConnectionPtr bulk_;
    std::deque<remote::Frame> bulk_waiting_;
    std::map<remote::StageKey, std::uint64_t> begins_;  // that went to the second connection
    bool open_ = true;
};

}  // namespace paceline
