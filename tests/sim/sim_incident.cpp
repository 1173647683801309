#include "tests/sim/sim_incident.hpp"

#include <algorithm>
#include <array>

#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};

bool is_enabled(SimIncident incident, const SimKinds& kinds) {
    switch (incident) {
        case SimIncident::None:
            return false;
        case SimIncident::Poison:
            return kinds.poison;
        case SimIncident::Drain:
            return kinds.drain;
        case SimIncident::CrashLoop:
            return kinds.crash_loop;
        case SimIncident::Suspension:
            return kinds.suspension;
        case SimIncident::SlowJobs:
            return kinds.slow_jobs;
    }
    return false;
}

/// Nothing else goes wrong, and the rules are those of the program.
void nothing_else(SimScenario& scenario) {
    scenario.faults.clear();
    scenario.restarts = {};
    scenario.conductor.recovery_limit = Micros{180'000'000};
    scenario.conductor.poison_limit = 3;
}

void add_poison(SimRandom& random, SimScenario& scenario) {
    nothing_else(scenario);
    for (SimClient& client : scenario.clients) {
        for (SimTurn& turn : client.turns) {
            if (turn.request.text.front() == kPoisonToken) turn.request.text.front() = 1;
        }
    }
    SimClient& client = scenario.clients[kPoisonClient];
    client.turns.resize(1);
    client.turns.front().stop_after.reset();
    client.turns.front().cancel_after.reset();
    client.turns.front().request.text.front() = kPoisonToken;
    const auto segments = static_cast<std::uint64_t>(scenario.plan.segments);
    scenario.poison_kills = toy_segment(static_cast<int>(1 + random.below(segments)));
    // A draft in a process of its own is done without for that request, and for no other.
    const bool has_draft = std::any_of(
        scenario.processes.begin(), scenario.processes.end(),
        [](const SimProcessSpec& spec) { return spec.process.on_death == OnDeath::RestartAlone; });
    if (!has_draft || !random.chance(50)) return;
    scenario.poison_kills = toy_draft(scenario.plan);
    // The answer lasts for many restarts.
    client.turns.front().request.max_tokens = 50;
    Request& request = client.turns.front().request;
    request.end_tokens.clear();
    request.grammar = {};  // it would need one
    request.compiled = nullptr;
    scenario.restarts.backoff = {Micros{0}};
    scenario.timing.job_min = 20 * kMilli;
    scenario.timing.job_max = 50 * kMilli;
    scenario.timing.load_max = 5 * kMilli;
}

void add_drain(SimRandom& random, SimScenario& scenario) {
    scenario.drain_at = random.log_uniform(kMilli, 2 * kSecond);
    scenario.drain_limit = random.log_uniform(kMilli, 3 * kSecond);
}

void add_crash_loop(SimRandom& random, SimScenario& scenario) {
    nothing_else(scenario);
    const SimTime load = random.uniform(10 * kSecond, 60 * kSecond);
    scenario.timing.load_min = load;
    scenario.timing.load_max = load;
    scenario.restarts.start_limit = Micros{120'000'000};
    const StageId process = scenario.processes[random.below(scenario.processes.size())].process.id;
    scenario.crash_loop = process;
    const SimTime begins = random.uniform(SimTime{0}, kSecond);
    scenario.faults.push_back({.at = begins, .kind = SimFaultKind::Crash, .process = process});
    scenario.faults_end = begins + 2 * kCrashLoopMost * load;
    // Each is for the next incarnation; the last one that comes before a Spawn counts.
    for (SimTime at = begins; at < scenario.faults_end; at += load / 2) {
        scenario.faults.push_back({.at = at,
                                   .kind = SimFaultKind::CrashAtStart,
                                   .process = process,
                                   .lasts = load + random.uniform(600 * kMilli, kSecond)});
    }
}

void add_suspensions(SimRandom& random, SimScenario& scenario) {
    nothing_else(scenario);
    for (std::uint64_t i = 1 + random.below(3); i > 0; --i) {
        scenario.suspensions.push_back({.at = random.log_uniform(kMilli, 2 * kSecond),
                                        .lasts = random.log_uniform(kMilli, 100 * kSecond)});
    }
    if (!random.chance(50)) return;
    // Within the time that its successor takes to load, and for longer than anything may take.
    SimSuspension& first = scenario.suspensions.front();
    first.lasts = random.uniform(200 * kSecond, 1'000 * kSecond);
    scenario.timing.load_min = kSecond;
    const auto segments = static_cast<std::uint64_t>(scenario.plan.segments);
    const StageId segment = toy_segment(static_cast<int>(1 + random.below(segments)));
    for (const SimProcessSpec& spec : scenario.processes) {
        if (!spec.hosts(segment)) continue;
        scenario.faults = {{.at = std::max(first.at - random.uniform(SimTime{0}, kSecond), kMilli),
                            .kind = SimFaultKind::Crash,
                            .process = spec.process.id}};
    }
    for (const SimSuspension& each : scenario.suspensions) {
        scenario.faults_end = std::max(scenario.faults_end, each.at + each.lasts);
    }
}

void add_slow_jobs(SimRandom& random, SimScenario& scenario) {
    nothing_else(scenario);
    scenario.timing.job_row = random.uniform(70 * kMilli, 100 * kMilli);
    scenario.faults_end = 4'000 * kSecond;  // so slow is everything
    // Each kind of job that is slow costs an attempt or two where nothing is known of it: where
    // that is more than two in a row, a request would be poison with good reason.
    const bool few_kinds = scenario.plan.segments == 1 && scenario.exit.at == 0 &&
                           !scenario.self_draft && !has_long_prompts(scenario.plan) &&
                           scenario.plan.draft != ToyDraft::Eagle;
    scenario.timing.row_timed = !few_kinds || random.chance(30);
}

}  // namespace

const char* name_of(SimIncident incident) {
    switch (incident) {
        case SimIncident::None:
            return "none";
        case SimIncident::Poison:
            return "poison";
        case SimIncident::Drain:
            return "drain";
        case SimIncident::CrashLoop:
            return "crash loop";
        case SimIncident::Suspension:
            return "suspension";
        case SimIncident::SlowJobs:
            return "slow jobs";
    }
    return "unknown";
}

void add_incident(std::uint64_t seed, const SimKinds& kinds, SimScenario& scenario) {
    SimRandom random{seed ^ 0x4a2d5419ULL};
    if (!random.chance(25)) {
        if (!kinds.slow_jobs || !random.chance(6)) return;
        scenario.incident = SimIncident::SlowJobs;
        return add_slow_jobs(random, scenario);
    }
    static constexpr std::array kAll{SimIncident::Poison, SimIncident::Drain,
                                     SimIncident::CrashLoop, SimIncident::Suspension};
    const SimIncident drawn = kAll[random.below(kAll.size())];
    if (!is_enabled(drawn, kinds)) return;
    scenario.incident = drawn;
    if (drawn == SimIncident::Poison) add_poison(random, scenario);
    if (drawn == SimIncident::Drain) add_drain(random, scenario);
    if (drawn == SimIncident::CrashLoop) add_crash_loop(random, scenario);
    if (drawn == SimIncident::Suspension) add_suspensions(random, scenario);
}

}  // namespace paceline::testing
