#include "actors/protocol/attempt_filter.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/faults.hpp"

namespace paceline {

bool AttemptFilter::is_news(RequestId request, Attempt attempt) const {
    const auto known = known_.find(request);
    return known == known_.end() || attempt > known->second.attempt;
}

void AttemptFilter::begun(RequestId request, Attempt attempt) {
    Known& known = known_[request];
    if (known.over) std::erase(over_, request);
    known = {attempt, false};
}

void AttemptFilter::await_again(RequestId request) {
    const auto known = known_.find(request);
    if (known != known_.end() && !known->second.over) --known->second.attempt.value;
}

void AttemptFilter::stopped(RequestId request, Attempt attempt) {
    if (!is_news(request, attempt) && known_.at(request).attempt != attempt) return;
    Known& known = known_[request];
    const bool was_over = std::exchange(known, {attempt, true}).over;
    if (was_over) return;
    over_.push_back(request);
    if (over_.size() > kOverMax) forget_oldest();
}

void AttemptFilter::ended(RequestId request) {
    const auto known = known_.find(request);
    if (known != known_.end()) stopped(request, known->second.attempt);
}

void AttemptFilter::all_ended() {
    for (auto& [request, known] : known_) {
        if (!std::exchange(known.over, true)) over_.push_back(request);
    }
    while (over_.size() > kOverMax) forget_oldest();
}

void AttemptFilter::forget_oldest() {
    const bool wrong = planted(PlantedBug::FilterForgetsRunning);
    known_.erase(wrong ? known_.begin()->first : over_.front());
    over_.pop_front();
}

Age AttemptFilter::age(RequestId request, Attempt attempt) const {
    if (is_news(request, attempt)) return Age::Early;
    const bool current = known_.at(request).attempt == attempt;
    return current || planted(PlantedBug::FilterIgnoresAttempt) ? Age::Current : Age::Stale;
}

Age AttemptFilter::peek(const msg::Route& route) const {
    const Age found = age(route.request, route.attempt);
    return found == Age::Early && planted(PlantedBug::FilterDropsEarly) ? Age::Stale : found;
}

Result<Age> AttemptFilter::admit(StageId from,
                                 std::uint16_t kind,
                                 const msg::Route& route,
                                 std::span<const std::byte> bytes) {
    const Age found = peek(route);
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

Age AttemptFilter::admit_hint(StageId from,
                              std::uint16_t kind,
                              const msg::Route& route,
                              std::span<const std::byte> bytes) {
    const Age found = peek(route);
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

void AttemptFilter::forget(StageId peer) {
    std::erase_if(held_, [peer](const Held& held) { return held.from == peer; });
}

std::vector<AttemptFilter::Held> AttemptFilter::take_due() {
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
