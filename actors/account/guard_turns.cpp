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
        counts_ = alone;
    }
    if (!std::exchange(decided_, true)) next_ = watch_->ask();
    return {.phase = phase_};
}

void GuardTurns::verified(
    const Tag& tag, int tokens, int candidates, bool natural_plain, Micros now) {
    if (tag.phase != phase_) {
        // What an earlier phase had under way: the turn begins after it.
        begun_ = now;
        return;
    }
    ++verdicts_;
    tokens_ += tokens;
    candidates_ += candidates;
    natural_plain_ = natural_plain_ && natural_plain;
    if (verdicts_ >= requests_) end_turn(now);
}

void GuardTurns::begin_turn(int allowed, Micros now) {
    if ((allowed > 0) != (allowed_ > 0)) ++phase_;
    allowed_ = allowed;
    begun_ = now;
    verdicts_ = 0;
    tokens_ = 0;
    candidates_ = 0;
    natural_plain_ = true;
    counts_ = true;
}

void GuardTurns::end_turn(Micros now) {
    ++turns_ended_;
    const bool mixed = allowed_ == 0 && candidates_ > 0;
    if (counts_ && !mixed && watch_ != nullptr) {
        const auto requests = static_cast<double>(requests_);
        const double tokens = tokens_ / requests;
        if (allowed_ > 0 && !natural_plain_) {
            watch_->drafted(now - begun_, tokens, candidates_ / requests);
        } else {
            watch_->round(now - begun_, tokens, 0.0);
        }
        const double plain = tokens * static_cast<double>(watch_->plain_token().count());
        if (plain > 0.0) {
            plain_took_ += plain;
            took_ += std::min(static_cast<double>((now - begun_).count()), kOutlier * plain);
        }
    }
    if (!std::exchange(decided_, false) && watch_ != nullptr) next_ = watch_->ask();
    begin_turn(next_, now);
}

}  // namespace paceline
