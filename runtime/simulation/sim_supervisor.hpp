// SimSupervisor: the parent of a simulated world's processes, whose site it is: it handles their
// reports, silence and ends, and the control messages of the conductor's actor. What follows from
// them is decided by the real Recovery, and executed by SimCommands.
//
// Checks that news of an incarnation that was replaced change nothing, that no stage fails without
// a fault or sends what it must not, and what BeginAudit does. One thread.
#pragma once

#include <optional>
#include <string>

#include "runtime/parent/recovery.hpp"
#include "runtime/simulation/begin_audit.hpp"
#include "runtime/simulation/sim_commands.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

class SimSupervisor final : public SimSite {
public:
    using SimSite::SimSite;

    // SimSite.
    void post(StageId from, StageId to, const control::Message& message) override;
    void excuse_loss(StageId actor) override;
    void report_fault(const SimEdgeFault& fault) override;
    void ended(SimProcess& process) override;
    void machine_news(const NodeRoll::News& news) override;

    /// An event of the kernel or of its own.
    void handle(const SimEvent& event);
    /// Executes all that was decided.
    void obey();
    /// The end of the conductor's actor ends the run.
    void check_conductor();
    /// The machine was suspended for `gap` until now.
    void paused(SimTime gap);

    [[nodiscard]] StageHealth health_of(StageId process) const {
        return recovery_.health_of(process);
    }
    [[nodiscard]] bool all_up() const;
    /// The incarnation that is at work, or nullptr while there is none.
    [[nodiscard]] SimProcess* current(StageId process);

private:
    template <class News>
    void inform(const SimProcess& about, News news);
    [[nodiscard]] bool is_held(const SimEvent& event, SimProcess& who);
    void take_report(SimProcess& from);
    void suspect(const SimProcess& whom, const std::string& why);
    void look_for_hang(SimProcess& who);

    Recovery recovery_{stages.members(), options.restarts};
    SimCommands commands_{*this, recovery_};
    BeginAudit begins_;
    SimTime tick_at_ = SimTime::max();
};

}  // namespace paceline
