#include "actors/protocol/inbox_gate.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "ipc/base/faults.hpp"

namespace paceline {

bool InboxGate::is_news(RequestId request, Attempt attempt) const {
    const auto known = current_.find(request);
    return known != current_.end() ? attempt > known->second : request > forgotten_;
}

void InboxGate::begun(RequestId request, Attempt attempt) {
    current_[request] = attempt;
    if (current_.size() <= kKnownMax) return;
    forgotten_ = current_.begin()->first;
    current_.erase(current_.begin());
}

Age InboxGate::age(RequestId request, Attempt attempt) const {
    if (is_news(request, attempt)) return Age::Early;
    const auto known = current_.find(request);
    if (known == current_.end()) return Age::Stale;
    const bool current = known->second == attempt;
    return current || planted(PlantedBug::GateIgnoresAttempt) ? Age::Current : Age::Stale;
}

Age InboxGate::peek(StageId from, const msg::Route& route) {
    const auto [newest, first] = epochs_.try_emplace(from, route.epoch);
    const bool former = route.epoch < newest->second;
    if (former && !planted(PlantedBug::GateIgnoresEpoch)) return Age::Stale;
    newest->second = route.epoch;
    const Age found = age(route.request, route.attempt);
    return found == Age::Early && planted(PlantedBug::GateDropsEarly) ? Age::Stale : found;
}

Result<Age> InboxGate::admit(StageId from,
                             std::uint16_t kind,
                             const msg::Route& route,
                             std::span<const std::byte> bytes) {
    const Age found = peek(from, route);
    if (found != Age::Early) return found;
    if (held_.size() >= kHeldMax && overflow_ == Overflow::DropOldest) {
        held_.erase(held_.begin());
    } else if (held_.size() >= kHeldMax) {
        return Error{Errc::Protocol,
                     fmt::format("stage {} sends messages for request {}, attempt {}, which has "
                                 "not begun; {} such messages are held already",
                                 from.value, route.request.value, route.attempt.value, kHeldMax)};
    }
    held_.push_back({from, kind, route, {bytes.begin(), bytes.end()}});
    return found;
}

Age InboxGate::admit_hint(StageId from,
                          std::uint16_t kind,
                          const msg::Route& route,
                          std::span<const std::byte> bytes) {
    const Age found = peek(from, route);
    if (found != Age::Early) return found;
    std::erase_if(held_, [&](const Held& held) {
        return held.from == from && held.kind == kind && held.route.request == route.request &&
               held.route.attempt <= route.attempt;
    });
    const auto is_hint = [kind](const Held& held) { return held.kind == kind; };
    const auto hints = std::count_if(held_.begin(), held_.end(), is_hint);
    if (static_cast<std::size_t>(hints) >= kHintsMax) {
        held_.erase(std::find_if(held_.begin(), held_.end(), is_hint));
    }
    if (held_.size() < kHeldMax) {
        held_.push_back({from, kind, route, {bytes.begin(), bytes.end()}});
    }
    return found;
}

void InboxGate::forget(StageId peer) {
    std::erase_if(held_, [peer](const Held& held) { return held.from == peer; });
}

std::vector<InboxGate::Held> InboxGate::take_due() {
    std::vector<Held> due;
    std::vector<Held> early;
    for (Held& held : held_) {
        (age(held.route.request, held.route.attempt) == Age::Early ? early : due)
            .push_back(std::move(held));
    }
    held_ = std::move(early);
    return due;
}

}  // namespace paceline
