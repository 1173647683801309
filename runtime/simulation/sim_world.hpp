// SimWorld: runs the actors of a pipeline in one thread, with one seed and a virtual clock.
// Processes, channels and connections are simulated; actors, their hosts, the tensor pools
// and the recovery state machine (recovery.hpp) are the real ones.
//
//     SimWorld world(options, specs, edges);
//     world.start(conductor);
//     world.call_at(time, [&] { conductor.submit(...); });
//     world.run([&] { return all_ended; }, limit);
//     world.violation()                      // nothing, or the first check that failed
//
// The conductor's process does not crash: its death ends a run by design. The others crash, freeze,
// run out of memory, slow down or are suspected without reason (sim_faults.hpp), as the plan
// says; a simulated supervisor carries out what Recovery commands. After a kill a process may
// linger: it wakes up when its successor is at work and writes into its old channels and its old
// connection. Order on a channel and on a connection is kept, as the real ones keep it.
//
// The world checks by itself: epochs only grow; Joined comes only when the stage and all survivors
// have their channels; a survivor keeps no channel to a lost peer; the attempts of the Begins to a
// stage only grow; events of an old incarnation change nothing; there are never two incarnations
// (except one that lingers); no stage fails without a fault; no stage loops without progress.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/parent/recovery.hpp"
#include "runtime/parent/stage_watch.hpp"
#include "runtime/simulation/shared_device.hpp"
#include "runtime/simulation/sim_core.hpp"
#include "runtime/simulation/sim_faults.hpp"
#include "runtime/simulation/sim_process.hpp"
#include "runtime/simulation/sim_timing.hpp"

namespace paceline {

struct SimOptions {
    std::uint64_t seed = 1;
    RestartRules restarts{};
    Micros hang_limit{1'000'000};  // a freeze that lasts longer is noticed
    /// Jobs have the same deadlines as in a stage process (runtime/loop/job_limits.hpp); a process
    /// whose job takes longer counts as hung. false: no deadlines.
    bool job_limits = false;
    bool tracing = false;
    bool jobs_may_run_early = true;
    std::function<void(const std::string& line)> on_line{};    // every event, in words
    std::int64_t (*allocations)(std::int64_t left) = nullptr;  // see SimSite
};

class SimWorld final : private SimSite {
public:
    /// `timing` is borrowed. The conductor's edges are among `edges`.
    SimWorld(const SimOptions& options,
             SimTiming& timing,
             std::vector<SimProcessSpec> stages,
             std::vector<EdgeSpec> edges);
    ~SimWorld() override;

    /// All processes at work in epoch 1, all channels there. `conductor` is borrowed.
    void start(Actor& conductor);
    void add_faults(std::vector<SimFault> faults);
    void call_at(SimTime at, std::function<void()> call);
    /// The whole machine is suspended for this time: every process, all jobs and the supervisor,
    /// which detects it by its own late poll.
    void suspend(SimTime lasts);

    /// Runs until `done`, a failed check, the end of the run, the last event, or the time `limit`.
    /// True if `done`.
    bool run(const std::function<bool()>& done, SimTime limit);

    [[nodiscard]] SimTime now() const { return core_.now; }
    [[nodiscard]] std::uint64_t events() const { return core_.events; }
    /// Of every event and its time: equal hashes, equal runs.
    [[nodiscard]] std::uint64_t hash() const { return core_.hash; }
    [[nodiscard]] const std::optional<std::string>& violation() const { return core_.violation; }
    /// For checks of the caller.
    void violate(std::string what) { core_.violate(std::move(what)); }
    template <class Text>
    void tell(Text text) {
        core_.tell(text);
    }

    /// Why the run ended before its time: the supervisor gave up, or the conductor failed.
    [[nodiscard]] const std::optional<Error>& gave_up() const { return gave_up_; }
    /// The current incarnation, or nullptr while there is none.
    [[nodiscard]] SimProcess* current(StageId process);
    [[nodiscard]] SimProcess& conductor() { return *processes_.front(); }
    [[nodiscard]] StageHealth health_of(StageId process) const {
        return recovery_->health_of(process);
    }
    [[nodiscard]] bool all_up() const;
    /// Tensor slots that are neither free nor held by their producer for its next batch: a
    /// sentence about the first one.
    [[nodiscard]] std::optional<std::string> leaked_tensors();
    /// Channels to an incarnation that is no more: a sentence about the first one.
    [[nodiscard]] std::optional<std::string> forgotten_channels();
    [[nodiscard]] const std::vector<std::unique_ptr<SimProcess>>& incarnations() const {
        return processes_;
    }

private:
    struct Stage {
        SimProcessSpec spec;
        std::uint32_t serial = 0;                // of its current incarnation
        Epoch newest{1};                         // of all that were ever spawned
        std::vector<std::uint32_t> survivors{};  // whom its Join was told to, by serial number
        std::optional<SimTime> lingers{};        // the next kill is survived for so long
        std::optional<SimTime> dies_at_start{};  // the next incarnation, so long after Spawn
        StageWatch watch{std::chrono::milliseconds{0}};  // of its current incarnation
        bool hung = false;                               // in a job that went on after its deadline
    };

    // SimSite.
    [[nodiscard]] SimProcess& process(std::uint32_t serial) override { return *processes_[serial]; }
    void post(StageId from, StageId to, const control::Message& message) override;
    void excuse_loss(StageId stage) override;
    void report_fault(const SimEdgeFault& fault) override;
    void ended(SimProcess& process) override;
    void job_began(SimProcess& process, const JobLabel& label, SimTime alone) override;
    void job_ended(SimProcess& process) override;
    void move_ends(const SharedDevice& device);
    [[nodiscard]] bool shares_devices() const;

    void dispatch(const SimEvent& event);
    void take_report(SimProcess& from);
    template <class News>
    void inform(const SimProcess& about, News news);
    void check_conductor();

    // sim_supervisor.cpp: carrying out what Recovery commands.
    void obey();
    void carry_out(const Recovery::Kill& kill);
    void carry_out(const Recovery::Spawn& spawn);
    void carry_out(const Recovery::Lost& lost);
    void carry_out(const Recovery::Unwire& unwire);
    void carry_out(const Recovery::Join& join);
    void carry_out(const Recovery::Joined& joined);
    void carry_out(const Recovery::Disabled& disabled);
    void carry_out(const Recovery::GiveUp& give_up);
    void check_joined(const Stage& stage);
    void die(std::uint32_t serial);
    void suspect(const SimProcess& whom, const std::string& why);
    void notice_end(const SimProcess& whom);
    [[nodiscard]] SimChannels connect(SimProcess& one, SimProcess& other) const;
    void to_conductor(SimMessage message) { processes_.front()->receive(std::move(message)); }

    // sim_faults.cpp
    void strike(const SimFault& fault);
    void freeze(SimProcess& process, SimTime lasts);
    void look_for_hang(SimProcess& who);
    [[nodiscard]] bool waits_for_resume(const SimEvent& event) const;
    void stall_edges(const SimFault& fault);

    [[nodiscard]] Stage& stage(StageId process);
    [[nodiscard]] Stage& home_of(StageId actor);
    [[nodiscard]] SimProcess& at(const Stage& stage) { return *processes_[stage.serial]; }
    [[nodiscard]] bool is_current(const SimProcess& process);
    SimProcess& make_process(const SimProcessSpec& spec,
                             Epoch epoch,
                             const JobRecords& before = {});

    SimOptions options_;
    SimCore core_;
    SimProcessSpec conductor_spec_;
    std::vector<Stage> stages_;
    std::vector<EdgeSpec> edges_;
    std::vector<std::unique_ptr<SimProcess>> processes_;  // all incarnations; 0: the conductor
    std::optional<Recovery> recovery_;
    std::vector<SimFault> faults_;
    std::vector<std::function<void()>> calls_;
    std::optional<Error> gave_up_;
    SimTime tick_at_ = SimTime::max();
    SimTime suspended_until_{0};
    std::set<std::uint32_t> lingering_;
    std::map<std::string, SharedDevice, std::less<>> devices_;
    using RequestAt =
        std::tuple<std::uint32_t, StageId, RequestId>;  // at an actor of an incarnation
    std::map<RequestAt, Attempt> begun_;
    std::set<RequestAt> asked_;  // whose Begin is to come once more
};

}  // namespace paceline
