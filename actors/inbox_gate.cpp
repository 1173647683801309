#include "actors/inbox_gate.hpp"

#include <string>
#include <utility>

namespace paceline {

bool InboxGate::is_news(RequestId request, Attempt attempt) const {
    const auto known = current_.find(request);
    return known != current_.end() ? attempt > known->second : request > newest_;
}

void InboxGate::begun(RequestId request, Attempt attempt) {
    current_[request] = attempt;
    if (request > newest_) newest_ = request;
    if (current_.size() > kKnownMax) current_.erase(current_.begin());
}

Age InboxGate::age(const msg::Route& route) const {
    if (is_news(route.request, route.attempt)) return Age::Early;
    const auto known = current_.find(route.request);
    return known != current_.end() && known->second == route.attempt ? Age::Current : Age::Stale;
}

Result<Age> InboxGate::admit(StageId from,
                             std::uint16_t kind,
                             const msg::Route& route,
                             std::span<const std::byte> bytes) {
    const auto [newest, first] = epochs_.try_emplace(from, route.epoch);
    if (route.epoch < newest->second) return Age::Stale;
    newest->second = route.epoch;
    const Age found = age(route);
    if (found != Age::Early) return found;
    if (held_.size() >= kHeldMax) {
        return Error{Errc::Protocol,
                     "stage " + std::to_string(from.value) + " sends messages for request " +
                         std::to_string(route.request.value) + ", attempt " +
                         std::to_string(route.attempt.value) + ", which nobody has begun; " +
                         std::to_string(kHeldMax) + " such messages are held already"};
    }
    held_.push_back({from, kind, route, {bytes.begin(), bytes.end()}});
    return found;
}

std::vector<InboxGate::Held> InboxGate::take_due() {
    std::vector<Held> due;
    std::vector<Held> early;
    for (Held& held : held_) {
        (age(held.route) == Age::Early ? early : due).push_back(std::move(held));
    }
    held_ = std::move(early);
    return due;
}

}  // namespace paceline
