// One toy decode over real processes: a supervisor with toy_stage children, the conductor's loop
// with a client that checks every token, and a saboteur that does the damage.
//
//     ToyRun run{{.plan = {.segments = 2}, .load = {.streams = 8, .answers = 16}}};
//     const Status ended = run.decode();     // starts, decodes, does not end the stages
//     run.client().complaints()              // empty: every answer was right
//     const Status closed = run.shutdown();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "runtime/loop/stage_loop.hpp"
#include "runtime/parent/supervisor.hpp"
#include "tests/proc/saboteur.hpp"
#include "tests/support/toy/toy_client.hpp"
#include "tests/support/toy/toy_faults.hpp"

namespace paceline::testing {

/// No trace, restarts without end or delay, generous limits.
[[nodiscard]] SupervisorOptions toy_supervision();

struct ToyRunOptions {
    ToyPlan plan = {};
    ToyLoad load = {};
    SabotagePlan sabotage = {};
    std::vector<ToyFaultOf> faults = {};
    PlantedBug bug = PlantedBug::None;  // in this process and all of its stages
    SupervisorOptions supervision = toy_supervision();
    /// Answers are asked for until so many incarnations have ended, not counting `sabotage`.
    int deaths_wanted = 0;
    /// Of the conductor. Usually the stages are at fault here, not the requests.
    std::uint32_t poison_limit = 1'000'000;
    /// Called once, in this process, when all stages run; with their process ids.
    std::function<void(const std::vector<pid_t>&)> on_started = {};
};

class ToyRun {
public:
    explicit ToyRun(ToyRunOptions options);
    ToyRun(const ToyRun&) = delete;
    ToyRun& operator=(const ToyRun&) = delete;
    ~ToyRun();

    [[nodiscard]] Status decode();
    [[nodiscard]] Status shutdown();

    [[nodiscard]] const ToyClient& client() const { return *client_; }
    [[nodiscard]] const Saboteur& saboteur() const { return *saboteur_; }
    [[nodiscard]] const ConductorActor& conductor() const { return *conductor_; }
    [[nodiscard]] const Supervisor& supervisor() const { return *supervisor_; }
    /// What the supervisor said, one sentence a line: for messages of failed tests.
    [[nodiscard]] const std::string& news() const { return news_; }

private:
    ToyRunOptions options_;
    std::string news_;
    std::unique_ptr<Supervisor> supervisor_;
    std::unique_ptr<ConductorActor> conductor_;
    std::unique_ptr<ToyClient> client_;
    std::unique_ptr<Saboteur> saboteur_;
    std::unique_ptr<StageLoop> loop_;
};

/// Runs it to the end and checks, as doctest checks, that every answer was right and that nothing
/// failed; prints the news if not.
void check_decodes(ToyRun& run);

}  // namespace paceline::testing
