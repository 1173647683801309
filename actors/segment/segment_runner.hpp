// SegmentRunner: keeps the layers of a segment at work: one job at a time, as long as there is
// something to compute.
//
//     advance()   [idle] --a draft is due-------> draft job (self_draft/self_draft.hpp)
//                        --parts are ready------> run: layers, verdicts or an exit (run_job.hpp)
//                        --a run was passed on--> exit job (early_verify.hpp)
//                        --nothing is ready-----> a timer for what is due without a message
//
// At the end of a run its stale rows are dropped, its verdicts are announced, or its rows are
// passed on; then it advances again.
//
// Borrows host, backend, roles, intake and outlet. Owns the running run. Threads: the actor's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/segment/batch_intake.hpp"
#include "actors/segment/batch_outlet.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_roles.hpp"
#include "actors/segment/segment_run.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"

namespace paceline {

/// What the actor of a last segment does with the verdicts of a run.
struct RunResults {
    /// Applies one that was just announced.
    std::function<Status(RequestState& state, const msg::Verdict& verdict)> apply;
    /// All are applied: requests may have ended.
    std::function<Status()> applied;
};

class SegmentRunner {
public:
    SegmentRunner(SegmentHost& host,
                  Backend& backend,
                  SegmentRoles& roles,
                  BatchIntake& intake,
                  BatchOutlet& outlet,
                  RunResults results);
    ~SegmentRunner();
    SegmentRunner(const SegmentRunner&) = delete;
    SegmentRunner& operator=(const SegmentRunner&) = delete;

    /// Submits the next job if none is running, and sets the timer.
    Status advance();
    /// Requests have changed: a run whose rows are all stale is cancelled.
    void cancel_if_stale();
    /// All attempts are cancelled.
    void cancel();
    /// The tensors that the run reads are gone.
    void forget_tensors();

private:
    using RunPtr = std::shared_ptr<SegmentRun>;

    [[nodiscard]] bool busy() const { return running_ || roles_.busy(); }
    [[nodiscard]] bool submit_draft();
    [[nodiscard]] Result<std::vector<WaitingPart>> next_parts();
    void wake_when_due();

    Status start(std::span<const WaitingPart> parts);
    [[nodiscard]] bool uses_scratch_rows(const LayerJob& job) const;
    void record(const SegmentRun& run);
    void submit(const RunPtr& run);
    void finish(const RunPtr& run, JobOutcome outcome);
    Status continue_run(const RunPtr& run);
    Status announce(const SegmentRun& run);
    void submit_exit();

    SegmentHost& host_;
    Backend& backend_;
    SegmentRoles& roles_;
    BatchIntake& intake_;
    BatchOutlet& outlet_;
    RunResults results_;
    RunPtr running_;
    RowMemory work_;                 // see uses_scratch_rows()
    std::optional<Micros> wake_at_;  // the timer that is set
};

}  // namespace paceline
