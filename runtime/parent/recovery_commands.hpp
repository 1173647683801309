// RecoveryCommands: executes what recovery.hpp decides, on processes, channels and the events for
// the conductor's loop.
//
// Borrows the run, which outlives it. Threads: the supervisor's.
#pragma once

#include "runtime/parent/supervised_run.hpp"

namespace paceline {

class RecoveryCommands {
public:
    explicit RecoveryCommands(SupervisedRun& run) : run_{run} {}

    /// All that recovery has decided by now, in order. Precondition: the run has begun.
    void carry_out_all();

private:
    void carry_out(const Recovery::Spawn& spawn);
    void carry_out(const Recovery::Unwire& unwire);
    void carry_out(const Recovery::Join& join);
    void carry_out(const Recovery::Joined& joined);
    void carry_out(const Recovery::Kill& kill) { run_.node->kill({kill.id, kill.epoch}); }
    void carry_out(const Recovery::Lost& /*lost*/) {}  // Unwire tells the loop, and it the actor
    void carry_out(const Recovery::Disabled& disabled) {
        run_.news(disabled.why + "; going on without it");
    }
    void carry_out(const Recovery::GiveUp& give_up) { run_.end.give_up(give_up.error); }

    SupervisedRun& run_;
};

}  // namespace paceline
