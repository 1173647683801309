#include "runtime/cluster/node_slot.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace paceline {
// ---- the supervisor's side ----

std::optional<Epoch> NodeSlot::take_over() {
    const std::lock_guard lock{door_};
    events_.clear();
    return connected_;
}

void NodeSlot::post(Epoch node_epoch, Command command) {
    {
        const std::lock_guard lock{door_};
        commands_.push_back({node_epoch, std::move(command)});
    }
    boost::asio::post(io_, [this] { run_commands(); });
}

std::deque<NodeEvent> NodeSlot::take_events() {
    const std::lock_guard lock{door_};
    return std::exchange(events_, {});
}

void NodeSlot::wake_with(Doorbell bell) {
    const std::lock_guard lock{door_};
    wake_ = std::move(bell);
}

// ---- the connections' side ----

void NodeSlot::tell(NodeEvent event) {
    const std::lock_guard lock{door_};
    if (const auto* back = std::get_if<LinkBack>(&event)) connected_ = back->node_epoch;
    if (std::holds_alternative<LinkLost>(event)) connected_.reset();
    events_.push_back(std::move(event));
    if (wake_) wake_->announce();
}

void NodeSlot::run_commands() {
    for (;;) {
        std::deque<Posted> posted;
        {
            const std::lock_guard lock{door_};
            posted = std::exchange(commands_, {});
        }
        if (posted.empty()) return;
        for (Posted& each : posted) {
            if (side_ && each.node_epoch == epoch_) each.command(*side_);
        }
    }
}

void NodeSlot::adopt(std::unique_ptr<LinkSide> side) {
    // An agent comes without stages: those of its earlier connection have ended.
    if (lease_) tell(LeaseEnded{why_ + "; it is back"});
    side_ = std::move(side);
    ++epoch_.value;
    side_->link.set_epoch(epoch_);
    lease_.emplace(rules_, lease_clock());
    tell(LinkBack{epoch_});
}

Status NodeSlot::on_frame(const LinkSide* from, const remote::Frame& frame) {
    if (!side_ || side_.get() != from) return {};
    LinkSide& side = *side_;
    Status status;
    if (const auto* ask = std::get_if<remote::LeaseAsk>(&frame)) {
        const Nanos now = lease_clock();
        if (!lease_) return {};  // it is being closed
        lease_->grant(now);
        const auto length = std::chrono::duration_cast<std::chrono::milliseconds>(lease_->length());
        side.link.say(remote::LeaseGrant{ask->number, ask->asked_ns,
                                         static_cast<std::uint64_t>(now.count()), epoch_,
                                         static_cast<std::uint32_t>(length.count())});
    } else if (const auto* edge = std::get_if<remote::EdgeFrame>(&frame)) {
        status = side.relay.take(*edge);
    } else if (const auto* part = std::get_if<remote::TensorPart>(&frame)) {
        status = side.relay.take(*part);
    } else if (const auto* room = std::get_if<remote::EdgeRoom>(&frame)) {
        status = side.relay.take(*room);
    } else if (const auto* free = std::get_if<remote::TensorFree>(&frame)) {
        status = side.relay.take(*free);
    } else if (const auto* line = std::get_if<remote::BoardLine>(&frame)) {
        if (side.board) side.board->take(*line);
    } else if (const auto* report = std::get_if<remote::StageReport>(&frame)) {
        tell(*report);
    } else if (const auto* control = std::get_if<remote::StageControl>(&frame)) {
        tell(*control);
    } else if (const auto* counters = std::get_if<remote::Counters>(&frame)) {
        tell(*counters);
    } else if (const auto* shutdown = std::get_if<remote::Shutdown>(&frame)) {
        return Error{Errc::PeerGone, "it ended: " + shutdown->reason};
    } else {
        status = Error{Errc::Protocol, std::string{"the agent sent '"} +
                                           remote::name_of(remote::kind_of(frame)) + "'"};
    }
    if (status.ok() && side.relay.take_room()) round();
    return status;
}

void NodeSlot::replace(const std::string& why) {
    if (side_) give_up(why);
}

/// Before the connection has said that it is over.
void NodeSlot::give_up(const std::string& why) {
    why_ = why;
    side_->relay.clear();
    side_->link.close(why);
    closing_.push_back(std::move(side_));
    tell(LinkLost{why_});
}

void NodeSlot::on_end(const LinkSide* from, const Error& error) {
    const auto destroy = [this](std::unique_ptr<LinkSide> side) {
        // This call comes from within it.
        boost::asio::post(io_, [over = std::shared_ptr<LinkSide>{std::move(side)}] {});
    };
    const auto closed = std::find_if(closing_.begin(), closing_.end(),
                                     [from](const auto& each) { return each.get() == from; });
    if (closed != closing_.end()) {
        destroy(std::move(*closed));
        closing_.erase(closed);
    }
    if (!side_ || side_.get() != from) return;
    why_ = error.what;
    side_->relay.clear();
    destroy(std::move(side_));
    tell(LinkLost{why_});
}

void NodeSlot::round() {
    if (!side_) {
        if (lease_ && lease_->is_over(lease_clock())) {
            lease_.reset();
            tell(LeaseEnded{why_});
        }
        return;
    }
    if (lease_ && lease_->is_over(lease_clock())) {
        // A link that was cut says nothing.
        give_up("nothing came from it until its lease ended");
        return round();
    }
    if (side_->relay.pump([this] { run_commands(); })) post_round();
    if (side_ && side_->board) side_->board->pump(side_->link);
}

/// Behind what the thread has to do besides.
void NodeSlot::post_round() {
    if (std::exchange(round_posted_, true)) return;
    boost::asio::post(io_, [this] {
        round_posted_ = false;
        round();
    });
}

void NodeSlot::close(const std::string& reason) {
    run_commands();
    if (!side_) return;
    side_->link.say(remote::Shutdown{reason});
    side_->link.close(reason);
    lease_.reset();
}

}  // namespace paceline
