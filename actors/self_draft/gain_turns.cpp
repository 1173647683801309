#include "actors/self_draft/gain_turns.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

GainWatch& GainTurns::watch_for(std::size_t requests) {
    PACE_CHECK(requests > 0, "a round of no request");
    return watches_.try_emplace(std::bit_width(requests - 1), enabled_).first->second;
}

GainTurns::Round GainTurns::begin(std::size_t requests, Micros since) {
    if (tokens_ > 0) close();
    // A request that is alone begins its own turn: the rounds of others were given up.
    if (requests == 1) asked_ = nullptr;
    if (asked_ == nullptr) {
        asked_ = &watch_for(requests);
        drafts_ = asked_->ask();
        counts_ = true;
        begun_ = since;
        ++turn_;
    }
    begun_ = std::min(begun_, since);
    return {.turn = turn_, .drafts = drafts_};
}

void GainTurns::verified(const Round& round, int tokens, Micros now) {
    if (round.turn != 0 && round.turn != turn_) counts_ = false;
    tokens_ += tokens;
    last_verdict_ = now;
}

void GainTurns::close() {
    GainWatch* const watch = std::exchange(asked_, nullptr);
    const int tokens = std::exchange(tokens_, 0);
    if (watch != nullptr && counts_) watch->round(drafts_, last_verdict_ - begun_, tokens);
}

}  // namespace paceline
