// HangCheck: reads the telemetry blocks of the stages at work, and reports those that hang
// (stage_watch.hpp) to recovery.
//
// Borrows the run, which outlives it. Threads: the supervisor's.
#pragma once

#include "runtime/parent/supervised_run.hpp"

namespace paceline {

class HangCheck {
public:
    explicit HangCheck(SupervisedRun& run) : run_{run} {}

    /// Before each event of the node agent and each tick of recovery. A late call (the conductor
    /// was stopped, or the whole machine) means that the stages may have been frozen as well: their
    /// deadlines move with it, and the limits of those that start. Recovery looks at all limits
    /// when one stage is gone, so a pause that began in the middle of a poll has to be noted before
    /// the next event of that poll. Nothing happens while the run is not running.
    void note_pause();
    /// After each poll() of the node agent.
    void look();

private:
    SupervisedRun& run_;
    StageWatch::Nanos polled_at_{0};
    StageWatch::Nanos looked_at_{0};  // at the telemetry blocks
};

}  // namespace paceline
