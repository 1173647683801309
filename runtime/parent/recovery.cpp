#include "runtime/parent/recovery.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

const char* name_of(StageHealth health) {
    switch (health) {
        case StageHealth::Up:
            return "up";
        case StageHealth::Wiring:
            return "wiring";
        case StageHealth::Loading:
            return "loading";
        case StageHealth::Resting:
            return "resting";
        case StageHealth::Dying:
            return "dying";
        case StageHealth::Disabled:
            return "disabled";
        case StageHealth::Waiting:
            return "waiting for a machine";
    }
    return "unknown";
}

Recovery::Recovery(std::vector<Member> members, RestartRules rules) : rules_{std::move(rules)} {
    PACE_CHECK(!rules_.backoff.empty(), "restart rules without a back-off");
    for (Member& member : members) states_.push_back({.member = std::move(member)});
}

// ---- what there is ----

Recovery::State* Recovery::current(StageId id, Epoch epoch) {
    for (State& state : states_) {
        if (state.member.id != id) continue;
        const bool is_current = state.epoch == epoch || planted(PlantedBug::StaleReadyCounts);
        return is_current ? &state : nullptr;
    }
    PACE_CHECK(false, "news of a stage that does not exist");
    return nullptr;
}

const Recovery::State& Recovery::at(StageId id) const {
    const auto found = std::find_if(states_.begin(), states_.end(),
                                    [id](const State& s) { return s.member.id == id; });
    PACE_CHECK(found != states_.end(), "a stage that does not exist");
    return *found;
}

Epoch Recovery::epoch_of(StageId id) const {
    return at(id).epoch;
}

StageHealth Recovery::health_of(StageId id) const {
    return at(id).health;
}

std::vector<StageId> Recovery::wired_besides(StageId id) const {
    std::vector<StageId> wired;
    for (const State& state : states_) {
        const bool has_channels =
            state.health == StageHealth::Up || state.health == StageHealth::Wiring;
        if (has_channels && state.member.id != id) wired.push_back(state.member.id);
    }
    return wired;
}

// ---- losing one ----

/// Its channels are closed; no other stage depends on it any more.
void Recovery::lose(State& state, Micros now) {
    const bool had_channels =
        state.health == StageHealth::Up || state.health == StageHealth::Wiring;
    if (state.was_up) {
        commands_.emplace_back(Lost{state.member.id, state.why});
        state.lost = true;
        state.worked += now - state.up_since;
    }
    if (had_channels && !planted(PlantedBug::LostPeerStaysWired)) {
        commands_.emplace_back(
            Unwire{state.member.id, state.epoch, wired_besides(state.member.id)});
    }
    state.was_up = false;
    state.ready = false;
    state.outstanding.clear();
    forget_in_others(state.member.id, now);
}

/// Incarnations that wait for its answer stop waiting: it will be connected when it comes back.
void Recovery::forget_in_others(StageId id, Micros now) {
    for (State& state : states_) {
        if (state.health != StageHealth::Wiring || state.outstanding.erase(id) == 0) continue;
        check_joined(state, now);
    }
}

void Recovery::suspect(StageId id, Epoch epoch, const std::string& why, Micros now) {
    State* state = current(id, epoch);
    if (state == nullptr) return;
    switch (state->health) {
        case StageHealth::Up:
        case StageHealth::Wiring:
        case StageHealth::Loading:
            break;
        case StageHealth::Resting:
        case StageHealth::Dying:
        case StageHealth::Disabled:
        case StageHealth::Waiting:
            return;  // it is on its way already
    }
    state->why = why;
    lose(*state, now);
    state->health = StageHealth::Dying;
    commands_.emplace_back(Kill{id, epoch});
}

void Recovery::hopeless(StageId id, Epoch epoch, Micros now) {
    State* state = current(id, epoch);
    if (state == nullptr) return;
    state->hopeless = true;
    suspect(id, epoch, "", now);  // its exit report repeats the reason
}

void Recovery::gone(StageId id, Epoch epoch, const std::string& how, Micros now) {
    State* state = current(id, epoch);
    if (state == nullptr || state->health == StageHealth::Resting ||
        state->health == StageHealth::Disabled || state->health == StageHealth::Waiting) {
        return;
    }
    if (state->health != StageHealth::Dying) {
        state->why.clear();
        lose(*state, now);
    }
    // The reason of the suspicion comes before the exit report.
    state->why = state->why.empty() ? how : state->why + "; " + how;
    rest_or_give_up(*state, now);
}

void Recovery::rest_or_give_up(State& state, Micros now) {
    const std::string& name = state.member.name;
    if (state.member.on_death == OnDeath::StopRun) {
        state.health = StageHealth::Disabled;
        commands_.emplace_back(GiveUp{{Errc::PeerGone, state.why}});
        return;
    }
    if (state.hopeless)
        return give_up(state, fmt::format("stage '{}' cannot be restarted: {}", name, state.why));
    count_death(state);
    if (state.deaths.size() > rules_.restarts_max) {
        return give_up(
            state, fmt::format("stage '{}' died {} times within {} s of work; last: {}", name,
                               state.deaths.size(), rules_.period.count() / 1'000'000, state.why));
    }
    state.health = StageHealth::Resting;
    state.died = now;
    state.due = now + backoff_of(state);
    if (planted(PlantedBug::BackoffForever)) state.due = Micros::max();
    raise_epoch(state);
    tick(now);
}

void Recovery::raise_epoch(State& state) {
    if (!planted(PlantedBug::EpochNotRaised)) ++state.epoch.value;
}

// ---- losing its machine ----

/// The epoch is raised at once: nothing of the lost machine is of the next incarnation.
void Recovery::machine_lost(StageId id, Epoch epoch, const std::string& why, Micros now) {
    State* state = current(id, epoch);
    if (state == nullptr || state->health == StageHealth::Resting ||
        state->health == StageHealth::Disabled || state->health == StageHealth::Waiting) {
        return;
    }
    if (state->health != StageHealth::Dying) {
        state->why.clear();
        lose(*state, now);
    }
    state->why = state->why.empty() ? why : state->why + "; " + why;
    state->lost = false;
    state->excused = false;
    if (state->member.on_death == OnDeath::StopRun) {
        state->health = StageHealth::Disabled;
        commands_.emplace_back(GiveUp{{Errc::PeerGone, state->why}});
        return;
    }
    const bool disposable = state->member.on_death == OnDeath::RestartAlone;
    state->health = StageHealth::Waiting;
    // A machine that comes back and fails each time gets no more time by that.
    if (!state->machine_due) state->machine_due = now + rules_.machine_wait;
    state->due = disposable ? Micros::max() : *state->machine_due;
    state->pauses = 0;
    raise_epoch(*state);
}

void Recovery::machine_back(StageId id, Micros now) {
    for (State& state : states_) {
        if (state.member.id != id || state.health != StageHealth::Waiting) continue;
        state.health = StageHealth::Resting;
        state.died = now;
        state.due = now;
        tick(now);
    }
}

Micros Recovery::backoff_of(const State& state) const {
    const std::size_t deaths = state.deaths.empty() ? 0 : state.deaths.size() - 1;
    return rules_.backoff[std::min(deaths, rules_.backoff.size() - 1)];
}

void Recovery::count_death(State& state) {
    while (!state.deaths.empty() && state.worked - state.deaths.front() > rules_.period) {
        state.deaths.pop_front();
    }
    if (!state.excused) state.deaths.push_back(state.worked);
    state.lost = false;
    state.excused = false;
}

/// The pipeline continues without it, or ends.
void Recovery::give_up(State& state, std::string text) {
    state.health = StageHealth::Disabled;
    if (state.member.on_death == OnDeath::RestartAlone) {
        commands_.emplace_back(Disabled{state.member.id, std::move(text)});
    } else {
        commands_.emplace_back(GiveUp{{Errc::PeerGone, std::move(text)}});
    }
}

void Recovery::excuse(StageId id) {
    for (State& state : states_) {
        if (state.member.id != id) continue;
        if (state.lost && !state.excused) {
            state.excused = true;
        } else if (!state.deaths.empty()) {
            state.deaths.pop_back();
        }
        // Its back-off follows from the remaining deaths.
        if (state.health == StageHealth::Resting && !planted(PlantedBug::BackoffForever))
            state.due = std::min(state.due, state.died + backoff_of(state));
    }
}

// ---- bringing it back ----

void Recovery::greeted(StageId id, Epoch epoch, Micros now) {
    State* state = current(id, epoch);
    if (state == nullptr || state->health != StageHealth::Loading) return;
    const std::vector<StageId> survivors = wired_besides(id);
    state->health = StageHealth::Wiring;
    if (planted(PlantedBug::LoadCountsAsWork)) state->worked += rules_.period + Micros{1};
    state->due = now + rules_.start_limit;
    state->outstanding.insert(survivors.begin(), survivors.end());
    commands_.emplace_back(Join{id, epoch, survivors});
}

void Recovery::ready(StageId id, Epoch epoch, Micros now) {
    State* state = current(id, epoch);
    if (state == nullptr || state->health != StageHealth::Wiring) return;
    state->ready = true;
    check_joined(*state, now);
}

void Recovery::rewired(StageId survivor, StageId peer, Epoch peer_epoch, Micros now) {
    State* state = current(peer, peer_epoch);
    if (state == nullptr || state->health != StageHealth::Wiring) return;
    state->outstanding.erase(survivor);
    check_joined(*state, now);
}

void Recovery::check_joined(State& state, Micros now) {
    if (!state.ready) return;
    if (!state.outstanding.empty() && !planted(PlantedBug::BeginBeforeRewired)) return;
    state.health = StageHealth::Up;
    state.machine_due.reset();
    state.was_up = true;
    state.up_since = now;
    state.outstanding.clear();
    commands_.emplace_back(Joined{state.member.id, state.epoch});
}

// ---- time ----

/// If only answers of survivors are missing, they are suspected instead of the new incarnation.
void Recovery::too_slow(State& state, Micros now) {
    const std::string limit = fmt::format("{} ms", rules_.start_limit.count() / 1'000);
    if (!state.ready) {
        return suspect(state.member.id, state.epoch,
                       "stage '" + state.member.name + "' did not come back within " + limit, now);
    }
    state.due = now + rules_.start_limit;
    const std::set<StageId> silent = state.outstanding;  // suspect() takes them out
    for (const StageId id : silent) {
        suspect(id, epoch_of(id),
                "stage '" + at(id).member.name + "' did not take its new channels within " + limit,
                now);
    }
}

void Recovery::tick(Micros now) {
    for (State& state : states_) {
        const bool starting =
            state.health == StageHealth::Loading || state.health == StageHealth::Wiring;
        if (state.health == StageHealth::Resting && now >= state.due) {
            state.health = StageHealth::Loading;
            state.due = now + rules_.start_limit;
            state.pauses = 0;
            commands_.emplace_back(Spawn{state.member.id, state.epoch});
        } else if (starting && now >= state.due) {
            too_slow(state, now);
        } else if (state.health == StageHealth::Waiting && now >= state.due) {
            give_up(state,
                    fmt::format("stage '{}' waited {} s for a machine: {}", state.member.name,
                                rules_.machine_wait.count() / 1'000'000, state.why));
        }
    }
}

void Recovery::paused(Micros gap, Micros now) {
    if (planted(PlantedBug::PauseCountsAsLoading)) return;
    for (State& state : states_) {
        const bool starting =
            state.health == StageHealth::Loading || state.health == StageHealth::Wiring;
        const bool waits = state.health == StageHealth::Waiting && state.due != Micros::max();
        if ((starting || waits) && state.pauses++ < kPausesMax) state.due += gap;
        if (state.health == StageHealth::Up) state.up_since = std::min(now, state.up_since + gap);
    }
}

std::optional<Micros> Recovery::due() const {
    std::optional<Micros> first;
    for (const State& state : states_) {
        const bool waits = state.health == StageHealth::Resting ||
                           state.health == StageHealth::Loading ||
                           state.health == StageHealth::Wiring ||
                           (state.health == StageHealth::Waiting && state.due != Micros::max());
        if (waits && (!first || state.due < *first)) first = state.due;
    }
    return first;
}

std::optional<Recovery::Command> Recovery::next() {
    if (commands_.empty()) return std::nullopt;
    Command command = std::move(commands_.front());
    commands_.pop_front();
    return command;
}

}  // namespace paceline
