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

}  // namespace paceline
