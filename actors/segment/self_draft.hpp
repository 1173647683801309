// SelfDraft: the role of a first segment that drafts for itself: between two verify batches of a request
// its own layers draft candidates, with an early exit or without some sub-layers
// (self_draft/self_draft_options.hpp).
// Handles: no message; it reads and grows the trees of its own segment.   Emits: none.
//
//     request    root --pass--> a --pass--> b --pass--> c          a chain (draft_chain.hpp)
//     batch      root, a, b, c                                     verified as any other candidates
//
// A pass computes the newest node of every request that drafts; it is a job of the segment, and runs
// before any batch. A drafted row uses the request's own KV slots:
//
//     sub-layers   [0, start)      [start, last)                   [last, end)
//     drafted row  as the target   without the skip set            not run
//     verify row   not run again   run, over what the draft wrote  run
//
// So what the draft writes before `start` is what the target would write, bit for bit (backends are
// row-invariant), and everything else is written again before it is read.
//
// After a verdict the time that the round took decides whether the next one is drafted
// (self_draft/gain_turns.hpp), and the skip set may be changed (skip_optimiser.hpp).
//
// Owns the chains and the memory of passes. Threads: the actor's loop; run() is the job.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/adaptive_stops.hpp"
#include "actors/decoding/head_candidates.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/dispatcher.hpp"
#include "actors/segment/draft_chain.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/self_draft_account.hpp"
#include "actors/segment/skip_optimiser.hpp"
#include "actors/segment/verifier.hpp"
#include "actors/self_draft/gain_turns.hpp"
#include "actors/self_draft/self_draft_options.hpp"

namespace paceline {

class SelfDraft {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<>;

    /// Borrows all but the options, which are valid. The backend begins at layer 0 and has the head.
    SelfDraft(SegmentHost& host,
              Backend& backend,
              Dispatcher& dispatcher,
              SelfDraftOptions options);

    void begin(const std::shared_ptr<RequestState>& state);
    /// A verdict was applied to the state: `step` is what it did.
    void follow(const RequestState& state, const TreeStep& step);

    // Its own job: a pass, or one of the optimiser.
    /// What it is to be submitted as; nothing if a batch is to be formed now.
    [[nodiscard]] std::optional<JobLabel> next_job();
    [[nodiscard]] RunOutcome run();
    void finish(RunOutcome outcome);
    [[nodiscard]] bool busy() const { return job_ != Job::None; }

    // A batch.
    /// The residuals of rows that were begun here, by BatchRow::tensor_row; nullptr: there are none.
    [[nodiscard]] std::shared_ptr<RowMemory> begun_rows(const RequestState& state) const;
    /// The run's rows are built: those of a tapped chain begin anew and keep their residuals.
    void prepare(SegmentRun& run);
    void ran(const SegmentRun& run, Micros took);
    /// The run was verified, before its verdict is followed.
    void verified(const VerifyPart& part);

private:
    enum class Job : std::uint8_t { None, Pass, Optimise };
    using ChainPtr = std::shared_ptr<DraftChain>;
    /// What a pass computes for one chain. The job reads this, not the chain: the loop may change that.
    struct Member {
        ChainPtr chain = {};
        std::shared_ptr<RowMemory> at_start = {};
        std::size_t index = 0;  // of the row in at_start
        std::span<const TokenId> committed = {};
        std::vector<TokenId> path = {};  // below the root, down to the row's own token
    };
    /// A row for each chain, all with the same path through the model.
    struct Pass {
        std::shared_ptr<const DraftPath> path = {};
        std::vector<Member> members = {};
        std::vector<Row> rows = {};
        std::vector<KvSlot> path_slots = {};
        std::vector<std::vector<Candidate>> best = {};
        std::vector<float> scores = {};  // of the probe; empty: the candidates' own
        CancelToken cancel = {};
    };

    [[nodiscard]] std::shared_ptr<const DraftPath> path_of(const SkipSet& set) const;
    void forget_ended();
    [[nodiscard]] bool may_begin(const DraftChain& chain) const;
    void begin_chain(DraftChain& chain);
    [[nodiscard]] std::int32_t limit(const DraftChain& chain) const;
    [[nodiscard]] std::optional<JobLabel> optimiser_job();
    [[nodiscard]] std::optional<JobLabel> pass_job();
    void add_row(const ChainPtr& chain, KvSlot slot);
    [[nodiscard]] JobLabel pass_label() const;
    RunOutcome run_pass();
    [[nodiscard]] bool drawn_with_layers() const;
    RunOutcome run_rows(bool draw);
    [[nodiscard]] DrawJob job_of(std::size_t member) const;
    [[nodiscard]] int candidates_wanted() const {
        return options_.tree ? options_.tree->most() : 1;
    }
    void keep_start();
    void find_candidates();
    void score();
    void finish_pass(RunOutcome outcome);
    void extend(DraftChain& chain, const std::vector<Candidate>& best, std::optional<float> score);
    void show();

    SegmentHost& host_;
    Backend& backend_;
    Dispatcher& dispatcher_;
    SelfDraftOptions options_;
    AdaptiveStops stops_;
    GainTurns turns_;
    SelfDraftAccount account_;
    HeadCandidates candidates_;
    std::optional<SkipOptimiser> optimiser_;
    std::shared_ptr<const DraftPath> path_;  // for chains that begin now
    std::map<RequestId, ChainPtr> chains_;
    Job job_ = Job::None;
    std::size_t job_requests_ = 0;  // decoded at once when the optimiser's job was chosen
    std::unique_ptr<Pass> pass_;
    Micros started_{0};                     // the job
    Micros decoding_{0};                    // time of passes and batches
    RowMemory hidden_;                      // [chains of a pass, dim]
    std::vector<float> residuals_;          // of the tapped rows: [rows, sublayers, dim]
    std::shared_ptr<RequestState> tapped_;  // whose rows they are
};

}  // namespace paceline
