// SkipSetJobs: the jobs that change which layers the model's candidates skip: the programme of a
// LayerChooser, or the trials of a SetSearcher. A model whose set is fixed has neither.
//
// Owns both. Borrows the host and its model. Threads: the actor's loop; a job is the chooser's or
// the searcher's run().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "actors/draft/layer_chooser.hpp"
#include "actors/draft/set_searcher.hpp"
#include "actors/draft/work/draft_host.hpp"

namespace paceline {

class SkipSetJobs {
public:
    using RequestPtr = DraftHost::RequestPtr;

    explicit SkipSetJobs(DraftHost& host);

    /// While no job runs: the model skips the best set, and the next job is submitted; false: none
    /// is due.
    bool start();
    /// A request is over.
    void cancel(const RequestPtr& request);

    /// As SetSearcher; a verdict on the tree as it was before.
    void passed(Micros took);
    void verified(const DraftTree& tree, const msg::Verdict& verdict);

    /// Gauges of the process, of a set that changes.
    void show() const;

    /// nullptr: the layers are not chosen by residuals.
    [[nodiscard]] LayerChooser* chooser() { return chooser_ ? &*chooser_ : nullptr; }
    /// Choices, and trials, that were made.
    [[nodiscard]] std::uint64_t choices() const { return chooser_ ? chooser_->made() : 0; }
    [[nodiscard]] std::uint64_t trials() const { return searcher_ ? searcher_->made() : 0; }

private:
    /// A trial of the search for a skip set.
    struct Trial {
        RequestPtr request;
        CancelToken cancel;
        Micros begun{0};
    };
    bool start_choice();
    bool start_trial();
    void end_trial(const std::shared_ptr<Trial>& trial, JobOutcome outcome);
    void set_changed();

    DraftHost& host_;
    std::optional<LayerChooser> chooser_;
    std::optional<SetSearcher> searcher_;
    std::shared_ptr<Trial> trial_;  // that runs
};

}  // namespace paceline
