#include "runtime/cluster/lease.hpp"

#include <algorithm>
#include <time.h>

namespace paceline {

LeaseRules::Nanos lease_clock() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

std::optional<LeaseHolder::Ask> LeaseHolder::ask(Nanos now) {
    if (now < ask_at_) return std::nullopt;
    ask_at_ = now + rules_.ask_interval;
    return Ask{++asks_, now};
}

void LeaseHolder::granted(std::uint64_t number, Nanos asked, Nanos length) {
    if (number == 0 || number > asks_) return;
    end_ = std::max(end_, asked + length);
}

void ClockOffset::add(Nanos asked, Nanos granted, Nanos arrived) {
    constexpr std::size_t kTrips = 16;  // of the last 8 s
    if (arrived < asked) return;
    trips_.push_back({arrived - asked, granted - asked - (arrived - asked) / 2});
    if (trips_.size() > kTrips) trips_.pop_front();
}

std::optional<ClockOffset::Nanos> ClockOffset::ahead() const {
    const auto shortest = std::min_element(
        trips_.begin(), trips_.end(),
        [](const Trip& one, const Trip& other) { return one.length < other.length; });
    if (shortest == trips_.end()) return std::nullopt;
    return shortest->ahead;
}

}  // namespace paceline
