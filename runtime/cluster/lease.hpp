// Lease: how long the stages of another machine may run without word from the conductor.
//
//     agent       ask every ask_interval; `length` counts from asking, at first from its Hello
//     conductor   `length` + `margin` counts from granting, at first from that Hello's arrival
//
// An ask is made before it is granted, so the agent's lease ends first, and the margin leaves it
// time to kill its stages: when the conductor counts them as ended, they have ended. That needs two
// clocks that run at about the same speed, and nothing of what they show. A late or repeated grant
// never shortens a lease. Pure but for lease_clock(); times are of
// the caller's CLOCK_MONOTONIC.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace paceline {

struct LeaseRules {
    using Nanos = std::chrono::nanoseconds;
    Nanos length{std::chrono::seconds{5}};
    Nanos margin{std::chrono::seconds{2}};  // for the agent to kill its stages
    Nanos ask_interval{std::chrono::milliseconds{500}};
};

/// CLOCK_MONOTONIC, the clock of leases and deadlines.
[[nodiscard]] LeaseRules::Nanos lease_clock();

/// The agent's end.
class LeaseHolder {
public:
    using Nanos = LeaseRules::Nanos;
    struct Ask {
        std::uint64_t number = 0;
        Nanos asked{};
    };

    /// The first lease counts from when the agent said Hello, which is before the conductor counts:
    /// the answer may be late.
    LeaseHolder(LeaseRules rules, Nanos said_hello)
        : rules_{rules}, end_{said_hello + rules.length} {}

    /// The ask that is due, if one is; it counts as asked.
    [[nodiscard]] std::optional<Ask> ask(Nanos now);
    /// `length` is the conductor's. A grant of an ask that was not made changes nothing.
    void granted(std::uint64_t number, Nanos asked, Nanos length);
    [[nodiscard]] bool is_over(Nanos now) const { return now >= end_; }
    [[nodiscard]] Nanos end() const { return end_; }

private:
    LeaseRules rules_;
    Nanos end_;
    Nanos ask_at_{0};
    std::uint64_t asks_ = 0;
};

/// How much more the conductor's clock shows than the agent's, from the round trips of asks: wrong
/// by at most half of one. The shortest of the last ones counts, because clocks drift.
class ClockOffset {
public:
    using Nanos = LeaseRules::Nanos;
    /// `asked` and `arrived` by the agent's clock, `granted` by the conductor's.
    void add(Nanos asked, Nanos granted, Nanos arrived);
    [[nodiscard]] std::optional<Nanos> ahead() const;

private:
    struct Trip {
        Nanos length{};
        Nanos ahead{};
    };
    std::deque<Trip> trips_;  // the newest last
};

/// The conductor's end.
class LeaseGranter {
public:
    using Nanos = LeaseRules::Nanos;
    LeaseGranter(LeaseRules rules, Nanos now)
        : rules_{rules}, end_{now + rules.length + rules.margin} {}

    void grant(Nanos now) { end_ = now + rules_.length + rules_.margin; }
    [[nodiscard]] Nanos length() const { return rules_.length; }
    /// From here on the stages have ended.
    [[nodiscard]] bool is_over(Nanos now) const { return now >= end_; }
    [[nodiscard]] Nanos end() const { return end_; }

private:
    LeaseRules rules_;
    Nanos end_;
};

}  // namespace paceline
