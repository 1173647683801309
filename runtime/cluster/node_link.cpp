#include "runtime/cluster/node_link.hpp"

#include <chrono>
#include <utility>

namespace paceline {
namespace {

constexpr std::chrono::milliseconds kCloseGrace{1'000};

}  // namespace

void NodeLink::start(Events events) {
    events_ = std::move(events);
    main_->start({.on_frame = [this](const remote::Frame& frame, Epoch node_epoch) -> Status {
                      if (!epochs_.admit(node_epoch)) return {};
                      return events_.on_frame(frame);
                  },
                  .on_end =
                      [this](const Error& error) {
                          open_ = false;
                          waiting_.clear();
                          events_.on_end(error);
                      },
                  .on_room =
                      [this] {
                          flush();
                          events_.on_room();
                      }});
}

remote::Sent NodeLink::send(const remote::Frame& frame, remote::Lane lane, bool urgent) {
    // Nothing passes what waits here.
    if (!waiting_.empty()) flush();
    if (!waiting_.empty()) return remote::Sent::Full;
    return main_->send(frame, epoch_, lane, urgent);
}

void NodeLink::say(remote::Frame frame) {
    if (!open_) return;
    const auto* control = std::get_if<remote::StageControl>(&frame);
    const bool is_long = control != nullptr &&
                         control->type == static_cast<std::uint16_t>(control::Type::Begin) &&
                         control->body.size() > remote::kMainBeginBytesMax;
    if (is_long) {
        const remote::BulkMark mark{control->who, ++begins_[control->who]};
        bulk_waiting_.push_back(std::move(frame));
        flush_bulk();
        frame = mark;
    }
    flush();
    waiting_.push_back(std::move(frame));
    flush();
}

void NodeLink::add_bulk(remote::ConnectionPtr bulk) {
    bulk_ = std::move(bulk);
    flush_bulk();
}

void NodeLink::flush_bulk() {
    while (bulk_ && !bulk_waiting_.empty()) {
        const remote::Sent sent =
            bulk_->send(bulk_waiting_.front(), epoch_, remote::Lane::Control, true);
        if (sent == remote::Sent::Full) return;
        bulk_waiting_.pop_front();  // sent, or the connection is over
    }
}

void NodeLink::flush() {
    while (!waiting_.empty()) {
        const remote::Sent sent =
            main_->send(waiting_.front(), epoch_, remote::Lane::Control, true);
        if (sent == remote::Sent::Full) return;
        waiting_.pop_front();  // sent, or the connection is over
    }
}

void NodeLink::close(const std::string& reason) {
    flush();
    main_->close(reason, kCloseGrace);
    if (bulk_) bulk_->close(reason, kCloseGrace);
}

}  // namespace paceline
