#include "actors/conductor/stop_outbox.hpp"

#include <fmt/core.h>
#include <span>

#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

bool is_sent(Context& context, StageId to, const msg::Stop& stop) {
    const Push pushed = context.send(to, static_cast<std::uint16_t>(msg::Kind::Stop),
                                     std::as_bytes(std::span{&stop, 1}));
    return pushed == Push::Ok || planted(PlantedBug::StopLost);
}

}  // namespace

Status StopOutbox::send(Context& context, StageId to, const msg::Stop& stop) {
    if (!waiting_.contains(to) && is_sent(context, to, stop)) return {};
    std::deque<msg::Stop>& stops = waiting_[to];
    std::erase_if(stops, [&stop](const msg::Stop& before) {
        return before.route.request == stop.route.request;
    });
    stops.push_back(stop);
    if (stops.size() <= kWaitingMax) return {};
    forget(to);
    return Error{Errc::Protocol, fmt::format("leaves more than {} stops unread", kWaitingMax)};
}

void StopOutbox::flush(Context& context, StageId to) {
    const auto found = waiting_.find(to);
    if (found == waiting_.end()) return;
    std::deque<msg::Stop>& stops = found->second;
    while (!stops.empty() && is_sent(context, to, stops.front())) stops.pop_front();
    if (stops.empty()) waiting_.erase(found);
}

}  // namespace paceline
