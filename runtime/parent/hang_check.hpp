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

    /// Before each poll() of the node agent. After a late look (the conductor was stopped, or the
    /// whole machine) the stages may have been frozen as well: their deadlines move with it, and
    /// the limits of those that start. Before what happened meanwhile is read, for recovery looks
    /// at all limits when one stage is gone.
    void note_pause();
    /// After it.
    void look();

private:
    SupervisedRun& run_;
    StageWatch::Nanos polled_at_{0};
    StageWatch::Nanos looked_at_{0};  // at the telemetry blocks
};

}  // namespace paceline
