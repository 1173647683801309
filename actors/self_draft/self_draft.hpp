// SelfDraft: a target that drafts for itself: between two verify batches of a request the layers of
// its first segment draft candidates, with an early exit or without some sub-layers
// (self_draft_options.hpp). It is a role of that segment.
// Handles: no message; it reads and grows the trees of its segment.   Emits: none.
//
//     request    root --pass--> a --pass--> b --pass--> c          a chain (draft_chain.hpp)
//     batch      root, a, b, c                                     verified as any other candidates
//
// A pass (draft_pass.hpp) computes the newest node of every request that drafts; it is a job of the
// segment, and runs before any batch. A drafted row uses the request's own KV slots:
//
//     sub-layers   [0, start)      [start, last)                   [last, end)
//     drafted row  as the target   without the skip set            not run
//     verify row   not run again   run, over what the draft wrote  run
//
// So what the draft writes before `start` is what the target would write, bit for bit (backends are
// row-invariant), and everything else is written again before it is read. Between the exit's layers
// and its head there may be an adapter with keys of its own (exit_adapter.hpp); it sees every row
// that comes through the exit, in a pass or in a batch.
//
// After a verdict the time that the round took decides whether the next one is drafted
// (gain_turns.hpp), and the skip set may be changed (skip_optimiser.hpp).
//
// Owns the chains and what passes are computed with. Threads: the actor's loop; run() is the job,
// and touches its pass or the optimiser alone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/account/gain_turns.hpp"
#include "actors/decoding/acceptance.hpp"
#include "actors/decoding/adaptive_stops.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "actors/self_draft/draft_chain.hpp"
#include "actors/self_draft/draft_pass.hpp"
#include "actors/self_draft/residual_stack.hpp"
#include "actors/self_draft/self_draft_host.hpp"
#include "actors/self_draft/self_draft_metrics.hpp"
#include "actors/self_draft/self_draft_options.hpp"
#include "actors/self_draft/skip_optimiser.hpp"

namespace paceline {

/// The rows of one request in a batch that runs next.
struct SelfDraftRows {
    std::shared_ptr<RequestState> state;
    msg::BatchKind kind;
    std::span<Row> rows;
};

class SelfDraft {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<>;

    /// Borrows the backend, which begins at layer 0 and has the head. The options are valid.
    SelfDraft(SelfDraftHost host, Backend& backend, SelfDraftOptions options);
    SelfDraft(const SelfDraft&) = delete;
    SelfDraft& operator=(const SelfDraft&) = delete;

    void start(StageContext& context) { host_.context = &context; }
    void begin(const std::shared_ptr<RequestState>& state);
    /// A verdict was applied to the state: `step` is what it did.
    void follow(const RequestState& state, const TreeUpdate& step);

    // Its own job: a pass, or one of the optimiser.
    /// What it is to be submitted as; nothing if a batch is to be formed now.
    [[nodiscard]] std::optional<JobLabel> next_job();
    [[nodiscard]] RunOutcome run();
    void finish(RunOutcome outcome);
    [[nodiscard]] bool busy() const { return job_.kind != Job::None; }

    // A batch.
    /// The residuals of rows that were begun here, by BatchRow::tensor_row; nullptr: there are
    /// none.
    [[nodiscard]] std::shared_ptr<RowMemory> begun_rows(const RequestState& state) const;
    /// The batch's rows are built: those of a tapped chain begin anew and keep their residuals.
    void prepare(std::span<const SelfDraftRows> batch);
    /// Gives the exit's adapter the rows of a run, in its job; nullptr: there is none.
    [[nodiscard]] ExitAdapter* adapter() { return tools_.adapter ? &*tools_.adapter : nullptr; }
    /// The batch has run. `verifies`: it was not prefill alone.
    void ran(bool verifies, Micros took);
    /// Rows of the batch were verified, before their verdict is followed.
    void verified(const RequestState& state,
                  std::span<const msg::BatchRow> rows,
                  const WalkResult& result);

private:
    enum class Job : std::uint8_t { None, Pass, Optimise };
    using ChainPtr = std::shared_ptr<DraftChain>;
    /// The job that was chosen last.
    struct ChosenJob {
        Job kind = Job::None;
        std::unique_ptr<DraftPass> pass = {};
        std::size_t requests = 0;  // decoded at once when the optimiser's was chosen
        Micros started{0};
    };

    [[nodiscard]] std::shared_ptr<const DraftPath> path_of(const SkipSet& set) const;
    void forget_ended();
    [[nodiscard]] bool may_begin(const DraftChain& chain) const;
    void begin_chain(DraftChain& chain);
    [[nodiscard]] std::int32_t longest(const DraftChain& chain) const;
    [[nodiscard]] std::int32_t limit(const DraftChain& chain) const;
    [[nodiscard]] std::optional<JobLabel> optimiser_job();
    [[nodiscard]] std::optional<JobLabel> pass_job();
    void finish_pass(RunOutcome outcome);
    void extend(DraftChain& chain, const std::vector<Candidate>& best, std::optional<float> score);
    void show();

    SelfDraftHost host_;
    DraftPassTools tools_;
    AdaptiveStops stops_;
    GainTurns turns_;
    SelfDraftMetrics metrics_;
    std::optional<SkipOptimiser> optimiser_;
    ResidualStack tapped_;
    std::shared_ptr<const DraftPath> path_;  // for chains that begin now
    std::map<RequestId, ChainPtr> chains_;
    ChosenJob job_;
    Micros decoding_{0};  // time of passes and batches
};

}  // namespace paceline
