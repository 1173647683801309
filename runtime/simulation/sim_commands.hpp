// SimCommands: executes what recovery.hpp decides on the processes of a simulated world, as
// runtime/parent/recovery_commands.hpp does on real ones.
//
// After a kill a process may linger: it wakes up when its successor is at work and writes into its
// old channels and its old connection. Checks that epochs only grow, that there is one incarnation
// of a stage (except one that lingers), and that Joined comes only when the stage and all survivors
// have their channels. Borrows site and recovery. One thread.
#pragma once

#include "runtime/parent/recovery.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

class SimCommands {
public:
    SimCommands(SimSite& site, const Recovery& recovery) : site_{site}, recovery_{recovery} {}

    void carry_out(const Recovery::Kill& kill);
    void carry_out(const Recovery::Spawn& spawn);
    void carry_out(const Recovery::Lost& lost);
    void carry_out(const Recovery::Unwire& unwire);
    void carry_out(const Recovery::Join& join);
    void carry_out(const Recovery::Joined& joined);
    void carry_out(const Recovery::Disabled& disabled);
    void carry_out(const Recovery::GiveUp& give_up);
    /// The event Die: a kill reaches its process.
    void reach(SimProcess& killed);

private:
    void check_joined(const SimStage& home);

    SimSite& site_;
    const Recovery& recovery_;
};

}  // namespace paceline
