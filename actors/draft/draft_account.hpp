// DraftAccount: what a speculative stage knows of costs and gains, for all its requests: what the
// dispatcher has told it, and what it has seen itself.
// Plain values. Threads: the actor's loop.
#pragma once

#include "actors/account/hit_rates.hpp"
#include "actors/account/pass_rule.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

struct DraftAccount {
    msg::Price price = {};  // generation 0: none yet
    HitRates rates = {};
    PassRule passes = {};
    bool shares_cores = false;  // as DraftPlan says

    /// Nothing is drafted now.
    [[nodiscard]] bool off() const { return is_off(price.mode); }
    /// Nothing in this turn, but in those after it.
    [[nodiscard]] bool rests() const { return price.mode == msg::SpeculationMode::Rest; }
};

}  // namespace paceline
