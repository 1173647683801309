#include "actors/account/guard_turns.hpp"

#include <algorithm>
#include <utility>

#include "actors/account/request_class.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

GuardTurns::Tag GuardTurns::formed(std::size_t requests, bool alone, Micros now) {
    PACE_CHECK(requests > 0, "a verify batch of no request");
    const bool other_number = requests != requests_;
    if (other_number) {
        requests_ = requests;
        constexpr GainWatch::Options kOptions{
            .plain_first = kPlainFirst, .check_first = kCheckFirst, .plain_kept = kPlainKept};
        watch_ = &watches_.try_emplace(class_of(requests), kOptions).first->second;
        decided_ = false;
    }
    if (std::exchange(interrupted_, false) || other_number) {
        // The time before this batch belongs to no turn; it may itself be one.
        const int allowed = decided_ ? next_ : watch_->ask();
        decided_ = false;
        begin_turn(allowed, now);
        turn_.counts = alone;
    }
    if (!std::exchange(decided_, true)) next_ = watch_->ask();
    return {.phase = phase_};
}

void GuardTurns::verified(
    const Tag& tag, int tokens, int candidates, bool natural_plain, Micros now) {
    if (tag.phase != phase_) {
        // What an earlier phase had under way: the turn begins after it.
        turn_.begun = now;
        return;
    }
    ++turn_.verdicts;
    turn_.tokens += tokens;
    turn_.candidates += candidates;
    turn_.natural_plain = turn_.natural_plain && natural_plain;
    if (turn_.verdicts >= requests_) end_turn(now);
}

void GuardTurns::begin_turn(int allowed, Micros now) {
    if ((allowed > 0) != (turn_.allowed > 0)) ++phase_;
    turn_ = {.allowed = allowed, .begun = now};
}

void GuardTurns::end_turn(Micros now) {
    ++turns_ended_;
    const bool mixed = turn_.allowed == 0 && turn_.candidates > 0;
    if (turn_.counts && !mixed && watch_ != nullptr) {
        const auto requests = static_cast<double>(requests_);
        const double tokens = turn_.tokens / requests;
        if (turn_.allowed > 0 && !turn_.natural_plain) {
            watch_->drafted(now - turn_.begun, tokens, turn_.candidates / requests);
        } else {
            watch_->round(now - turn_.begun, tokens, 0.0);
        }
        const double plain = tokens * static_cast<double>(watch_->plain_token().count());
        if (plain > 0.0) {
            plain_took_ += plain;
            took_ += std::min(static_cast<double>((now - turn_.begun).count()), kOutlier * plain);
        }
    }
    if (!std::exchange(decided_, false) && watch_ != nullptr) next_ = watch_->ask();
    begin_turn(next_, now);
}

}  // namespace paceline
