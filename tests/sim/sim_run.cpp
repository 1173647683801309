#include "tests/sim/sim_run.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/counters.hpp"
#include "model/kv_layout.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "tests/sim/alloc_faults.hpp"
#include "tests/sim/machine_plan.hpp"
#include "tests/sim/sim_client_run.hpp"
#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {
namespace {

/// Virtual time in which every request must have ended once the faults have.
constexpr SimTime kLivenessLimit{400'000'000'000};
/// Until all is quiet after the last answer.
constexpr SimTime kQuietLimit{60'000'000'000};
/// A timer of the conductor is as late as its loop.
constexpr SimTime kDrainSlack{1'000'000};

class Run {
public:
    Run(std::uint64_t seed,
        const std::function<void(const std::string&)>& on_line,
        const SimKinds& kinds)
        : kinds_{kinds},
          scenario_{draw_scenario(seed, kinds)},
          timing_{scenario_.timing},
          conductor_{scenario_.conductor, kFakeVocab, scenario_.text_slots},
          world_{options(seed, scenario_, on_line), timing_, scenario_.processes, scenario_.edges} {
        if (on_line) on_line(scenario_.describe());
    }

    SimOutcome go() {
        world_.start(conductor_);
        world_.faults().add(scenario_.faults);
        outcome_.faults = scenario_.faults.size() + scenario_.machines.faults.size();
        for (const SimClient& script : scenario_.clients) {
            const bool is_poison = scenario_.poison_kills &&
                                   scenario_.poison_kills != lone_draft() &&
                                   clients_.size() == kPoisonClient;
            clients_.push_back(std::make_unique<SimClientRun>(
                world_, conductor_, *scenario_.texts, script, outcome_,
                errors_may_come() || is_poison, losses_may_come()));
        }
        begin_incident();
        const auto through = [this] {
            return std::all_of(clients_.begin(), clients_.end(),
                               [](const auto& client) { return client->through(); });
        };
        const bool done = world_.run(through, scenario_.faults_end + kLivenessLimit);
        if (done) {
            check_leftovers();
        } else if (!world_.gave_up() && !world_.violation()) {
            world_.violate("a request has neither finished nor failed " +
                           std::to_string(kLivenessLimit.count() / 1'000'000'000) +
                           " s after the last fault; " +
                           world_.stages().leaked_tensors().value_or("no tensor slot is missing"));
        } else if (world_.gave_up() && !errors_may_come()) {
            world_.violate("gave up without a fault: " + world_.gave_up()->what);
        }
        check_story();
        check_incident();
        return result();
    }

private:
    static SimOptions options(std::uint64_t seed,
                              const SimScenario& scenario,
                              const std::function<void(const std::string&)>& on_line) {
        SimOptions options;
        options.seed = seed ^ 0x5eed5eed5eedULL;
        options.restarts = scenario.restarts;
        options.on_line = on_line;
        options.allocations = &set_allocations_left;
        options.job_limits = true;
        options.machines = scenario.machines;
        return options;
    }

    /// The draft, if it has a process of its own.
    [[nodiscard]] std::optional<StageId> lone_draft() const {
        for (const SimProcessSpec& spec : scenario_.processes) {
            if (spec.process.on_death == OnDeath::RestartAlone) return spec.process.id;
        }
        return std::nullopt;
    }
    /// A crash beside a suspension is what a pipeline must get over.
    [[nodiscard]] bool errors_may_come() const {
        const bool harmless = scenario_.faults.empty() && is_harmless(scenario_.machines);
        return !harmless && scenario_.incident != SimIncident::Suspension;
    }
    /// Whether stages may be lost, by a crash or because a job seems to hang.
    [[nodiscard]] bool losses_may_come() const {
        const bool unknown_jobs =
            scenario_.timing.job_row.count() != 0 && !scenario_.timing.row_timed;
        return !scenario_.faults.empty() || !is_harmless(scenario_.machines) ||
               scenario_.poison_kills || unknown_jobs;
    }

    /// A run that only machines have ended says which one, and does so only if none came.
    void check_story() {
        if (!world_.gave_up() || world_.violation() || !scenario_.faults.empty()) return;
        if (scenario_.machines.faults.empty()) return;
        const std::string& story = world_.gave_up()->what;
        if (all_come_back(scenario_))
            return world_.violate("gave up, although all machines come back: " + story);
        const bool is_clear = story.find("for a machine") != std::string::npos &&
                              story.find("'machine-") != std::string::npos;
        if (!is_clear) world_.violate("not a clear story of a lost machine: " + story);
    }

    void begin_incident() {
        if (scenario_.poison_kills) {
            *scenario_.on_poison = [this](StageId actor) {
                if (actor == *scenario_.poison_kills) crash_home_of(actor);
            };
        }
        if (scenario_.drain_at) {
            world_.call_at(*scenario_.drain_at, [this] {
                for (const auto& client : clients_) client->drained();
                conductor_.drain(Micros{scenario_.drain_limit.count() / 1'000});
            });
            world_.call_at(*scenario_.drain_at + scenario_.drain_limit + kDrainSlack, [this] {
                if (conductor_.open_requests() == 0) return;
                world_.violate("a request is open after the limit of the drain");
            });
        }
        for (const SimSuspension& each : scenario_.suspensions)
            world_.call_at(each.at, [this, &each] { world_.suspend(each.lasts); });
    }

    void crash_home_of(StageId actor) {
        for (const SimProcessSpec& spec : scenario_.processes) {
            if (!spec.hosts(actor)) continue;
            world_.faults().add(
                {{.at = world_.now(), .kind = SimFaultKind::Crash, .process = spec.process.id}});
            ++outcome_.faults;
        }
    }

    void check_incident() {
        if (world_.violation()) return;
        const std::size_t most = 1 + scenario_.processes.size() + scenario_.faults.size();
        const bool countable = scenario_.incident == SimIncident::Suspension || !losses_may_come();
        if (countable && world_.stages().incarnations().size() > most) {
            return world_.violate("a stage was replaced, although nothing was wrong with it");
        }
        if (scenario_.poison_kills && scenario_.poison_kills == lone_draft()) {
            if (world_.supervisor().health_of(*lone_draft()) == StageHealth::Disabled)
                world_.violate("a request has worn out the draft");
        } else if (scenario_.poison_kills) {
            const SimClientRun& client = *clients_[kPoisonClient];
            const std::string name =
                "request " + std::to_string(client.request() ? client.request()->value : 0) + " ";
            if (!client.error() || client.error()->find(name) == std::string::npos)
                world_.violate("the poison request did not end with an error that names it");
        }
        if (!scenario_.crash_loop) return;
        const auto lives = std::count_if(
            world_.stages().incarnations().begin(), world_.stages().incarnations().end(),
            [this](const auto& process) { return process->self.id() == *scenario_.crash_loop; });
        if (lives <= kCrashLoopMost) return;
        world_.violate("a process that always dies was started " + std::to_string(lives) +
                       " times");
    }

    /// Whatever was lost on the way, a stage that is told of new requests or of none holds no old
    /// one.
    void check_held_pages() {
        const StageId first = toy_segment(1);
        for (const SimProcessSpec& spec : scenario_.processes) {
            if (!spec.hosts(first)) continue;
            SimProcess* process = world_.supervisor().current(spec.process.id);
            const std::uint64_t pages =
                process == nullptr ? 0 : process->telemetry.block.gauge(gauges::kKvPages);
            const std::int32_t scratch = scenario_.plan.kv_slots - scenario_.text_slots;
            if (pages > static_cast<std::uint64_t>(pages_for(scratch)))
                world_.violate(process->self.title() + " holds " + std::to_string(pages) +
                               " pages of its cache, and no request is open");
        }
    }

    void check_held_requests() {
        for (const SimProcessSpec& spec : scenario_.processes) {
            SimProcess* process = world_.supervisor().current(spec.process.id);
            if (process == nullptr) continue;
            const std::uint64_t held = process->telemetry.block.gauge(gauges::kRequests);
            if (held == 0) continue;
            world_.violate(process->self.title() + " holds " + std::to_string(held) +
                           " requests, and none is open");
        }
    }

    /// But for a draft whose machine no other one has replaced.
    [[nodiscard]] bool all_back() {
        if (world_.machines() == nullptr) return world_.supervisor().all_up();
        return std::all_of(
            scenario_.processes.begin(), scenario_.processes.end(), [this](const auto& spec) {
                const StageHealth health = world_.supervisor().health_of(spec.process.id);
                const bool is_away = health == StageHealth::Waiting &&
                                     spec.process.on_death == OnDeath::RestartAlone &&
                                     !world_.machines()->line_of(spec.process.node);
                return is_away || health == StageHealth::Up || health == StageHealth::Disabled;
            });
    }

    [[nodiscard]] std::optional<std::string> leftovers_of_machines() {
        return world_.machines() == nullptr ? std::nullopt : world_.machines()->leftovers();
    }

    void check_leftovers() {
        // Answers fail before a crash loop is over, and end before a suspension begins.
        SimTime begins = world_.now();
        if (scenario_.crash_loop || !scenario_.suspensions.empty())
            begins = std::max(begins, scenario_.faults_end);
        for (const SimSuspension& each : scenario_.suspensions)
            begins = std::max(begins, each.at + each.lasts);
        if (scenario_.machines.others > 0)
            begins = std::max(begins, scenario_.faults_end) + aftermath(scenario_);
        (void)world_.run([] { return false; }, begins + kQuietLimit);
        if (world_.violation() || world_.gave_up()) return;
        if (scenario_.crash_loop) return;  // it may be down at any time
        if (!all_back()) return world_.violate("a stage has not come back");
        if (const auto left = leftovers_of_machines()) return world_.violate(*left);
        if (const auto channel = world_.stages().forgotten_channels())
            return world_.violate(*channel);
        if (const auto leak = world_.stages().leaked_tensors()) world_.violate(*leak);
        if (conductor_.open_requests() != 0) world_.violate("a request is open for ever");
        if (kinds_.held_requests) check_held_requests();
        check_held_pages();
    }

    SimOutcome result() {
        outcome_.violation = world_.violation();
        outcome_.hash = world_.hash();
        outcome_.events = world_.events();
        outcome_.fenced = conductor_.fenced();
        outcome_.restarts = world_.stages().incarnations().size() - 1 - scenario_.processes.size();
        outcome_.features = *scenario_.features;
        outcome_.gave_up = world_.gave_up().has_value();
        return outcome_;
    }

    SimKinds kinds_;
    SimScenario scenario_;
    RandomTiming timing_;
    ConductorActor conductor_;
    SimOutcome outcome_;
    std::vector<std::unique_ptr<SimClientRun>> clients_;
    SimWorld world_;
};

}  // namespace

SimOutcome run_seed(std::uint64_t seed,
                    const std::function<void(const std::string&)>& on_line,
                    const SimKinds& kinds) {
    return Run{seed, on_line, kinds}.go();
}

}  // namespace paceline::testing
