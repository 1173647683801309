#include "actors/account/gain_turns.hpp"

#include <algorithm>
#include <utility>

#include "actors/account/request_class.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

GainWatch& GainTurns::watch_for(std::size_t requests) {
    PACE_CHECK(requests > 0, "a round of no request");
    return watches_.try_emplace(class_of(requests), enabled_).first->second;
}

GainTurns::Round GainTurns::begin(std::size_t requests, Micros since) {
    if (verdicts_ > 0) close();
    since = std::max(since, job_end_);
    // A request that is alone begins its own turn: the rounds of others were given up.
    if (requests == 1) asked_ = nullptr;
    if (asked_ == nullptr) {
        asked_ = &watch_for(requests);
        allowed_ = asked_->ask();
        counts_ = true;
        begun_ = since;
        ++turn_;
    }
    begun_ = std::min(begun_, since);
    return {.turn = turn_, .candidates = allowed_};
}

void GainTurns::verified(const Round& round, int tokens, int candidates, Micros now) {
    if (round.turn != 0 && round.turn != turn_) counts_ = false;
    ++verdicts_;
    tokens_ += tokens;
    candidates_ += candidates;
    last_verdict_ = now;
}

void GainTurns::job_ended(std::size_t requests, Micros took, Micros now) {
    if (verdicts_ > 0) close();
    watch_for(requests).paid(took);
    job_end_ = now;
}

void GainTurns::close() {
    GainWatch* const watch = std::exchange(asked_, nullptr);
    const double requests = std::exchange(verdicts_, 0);
    const int tokens = std::exchange(tokens_, 0);
    const int candidates = std::exchange(candidates_, 0);
    if (watch == nullptr || !counts_ || (allowed_ > 0) != (candidates > 0)) return;
    watch->round(last_verdict_ - begun_, tokens / requests, candidates / requests);
}

}  // namespace paceline
