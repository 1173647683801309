// RunJob: the job of a run: its layers, and what the roles of the segment compute with them.
//
//     hidden states in -> layers (and the target's tokens) -> hidden states out -> verdicts -> exit
//                           `-- of a segment whose self-draft has an adapter: first as far as its
//                               exit, then the adapter, then the layers that are left
//
// It names everything that the job touches beside the text and the slot table of its requests, of
// which it reads the parts that no longer change. All of it is the job's from its submission to its
// end.
// Borrows the parts; the run owns the layers' and the roles own theirs.
#pragma once

#include "actors/segment/early_verify.hpp"
#include "actors/segment/layer_job.hpp"
#include "actors/segment/verify_job.hpp"
#include "actors/self_draft/exit_adapter.hpp"

namespace paceline {

struct RunJob {
    LayerJob& layers;
    VerifyJob* verify = nullptr;     // of the last segment
    ExitInside* inside = nullptr;    // of an exit that evaluates rows inside the run
    bool states_read = false;        // the hidden states are read by a role, in the job or after it
    ExitAdapter* adapter = nullptr;  // of a target that drafts for itself

    [[nodiscard]] JobOutcome run() const {
        layers.gather_inputs();
        RunOutcome outcome = RunOutcome::Done;
        if (adapter != nullptr)
            outcome = adapter->run_to_exit(layers.rows, layers.hidden, &layers.cancel);
        if (outcome == RunOutcome::Done) {
            outcome =
                verify != nullptr ? verify->run_layers(layers, states_read) : layers.run_layers();
        }
        if (adapter != nullptr) adapter->end_run(layers.rows);
        if (outcome == RunOutcome::Cancelled) return JobOutcome::Cancelled;
        layers.scatter_outputs();
        if (verify != nullptr) verify->verify();
        if (inside != nullptr) inside->evaluate(layers);
        return JobOutcome::Done;
    }
};

}  // namespace paceline
