// DraftPass: one pass of a target that drafts for itself: the newest row of several chains, all
// with the same path through the model. Used by SelfDraft.
//
//     loop   add(), prepare()   the rows
//     job    run()              layers, candidates and scores after each row
//     loop   best(), score()    the results
//
// The loop fills it before the job is submitted and reads it after the job has ended. In between it
// is the job's; only the cancel token is used by both at once. The job reads its rows, not the
// chains, which the loop may change meanwhile.
// Owns its rows; borrows the tools, which outlive it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/head_candidates.hpp"
#include "actors/self_draft/draft_chain.hpp"
#include "actors/self_draft/exit_adapter.hpp"
#include "actors/self_draft/self_draft_options.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// What all passes of a segment are computed with. One job at a time.
struct DraftPassTools {
    DraftPassTools(Backend& with, SelfDraftOptions how)
        : backend{with}, options{std::move(how)}, candidates{with} {
        if (options.adapter) adapter.emplace(with, options.exit);
    }

    Backend& backend;
    const SelfDraftOptions options;
    HeadCandidates candidates;
    RowMemory hidden = {};                    // [chains of a pass, dim]
    std::optional<ExitAdapter> adapter = {};  // of an exit that has one
};

class DraftPass {
public:
    using ChainPtr = std::shared_ptr<DraftChain>;

    explicit DraftPass(DraftPassTools& tools) : tools_{tools} {}
    DraftPass(const DraftPass&) = delete;
    DraftPass& operator=(const DraftPass&) = delete;

    /// Whether the pass has room for a row of this path.
    [[nodiscard]] bool takes(const DraftChain& chain) const;
    /// The newest row of a chain, which gets this slot. `path`: the chain's.
    void add(const ChainPtr& chain, KvSlot slot, const DraftPath& path);
    /// All rows are there.
    void prepare(StageContext& context);
    [[nodiscard]] JobLabel label() const;

    [[nodiscard]] RunOutcome run();

    [[nodiscard]] std::size_t size() const { return members_.size(); }
    [[nodiscard]] const DraftPath& path() const { return *path_; }
    [[nodiscard]] const ChainPtr& chain(std::size_t member) const { return members_[member].chain; }
    /// Which of its chain's computed rows it is.
    [[nodiscard]] std::size_t index(std::size_t member) const { return members_[member].index; }
    [[nodiscard]] const std::vector<Candidate>& best(std::size_t member) const {
        return best_[member];
    }
    /// The probe's score of the best candidate; nothing without a probe.
    [[nodiscard]] std::optional<float> score(std::size_t member) const;

private:
    struct Member {
        ChainPtr chain = {};
        std::shared_ptr<RowMemory> at_start = {};
        std::size_t index = 0;  // of the row in at_start
        std::span<const TokenId> committed = {};
        std::vector<TokenId> path = {};  // below the root, down to the row's own token
    };

    [[nodiscard]] bool drawn_with_layers() const;
    RunOutcome run_rows(bool draw);
    [[nodiscard]] DrawJob job_of(std::size_t member) const;
    [[nodiscard]] int candidates_wanted() const;
    void keep_start();
    [[nodiscard]] ConstHiddenRows head_rows() const;
    void find_candidates();
    void find_scores();

    DraftPassTools& tools_;
    std::shared_ptr<const DraftPath> path_;
    std::vector<Member> members_;
    std::vector<Row> rows_;
    std::vector<KvSlot> path_slots_;
    std::vector<std::vector<Candidate>> best_;
    std::vector<float> scores_;  // of the probe; empty: there is none
    CancelToken cancel_;
};

}  // namespace paceline
