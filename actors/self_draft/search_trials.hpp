// SearchTrials: runs the search for a skip set of SWIFT (skip_search.hpp) as jobs beside decoding.
//
// A trial measures one skip set: with its sub-layers skipped, the model predicts the last `window`
// committed tokens of a request, and the share of tokens that it predicts correctly is the set's
// score. The best set so far is measured on the same window, so that the two scores compare.
// Used by a target that drafts for itself (skip_optimiser.hpp) and by a draft in a process of its
// own (draft/set_searcher.hpp).
//
//     loop   prepare()  chooses the window and the next set; decides whether the state is saved
//     job    run()      saves the state; measures both sets
//     loop   finish()   passes the scores to the search
//
// A trial changes no text and no committed KV entry: its rows are written to scratch slots, and see
// the committed keys before the window and the rows of their own set.
// Owns the search and the memory of its trials. Threads: the actor's loop; run() alone is called by
// the job, and verdicts may arrive meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "actors/self_draft/skip_search.hpp"
#include "actors/self_draft/window_match.hpp"
#include "model/backend.hpp"

namespace paceline {

struct SearchTrialOptions {
    SkipSearchOptions search = {};
    int window = 32;               // tokens that a trial is measured on
    int interval = 1;              // verdicts between two jobs
    double optimise_share = 0.01;  // of the time of decoding, at most
    std::string state = {};        // SkipSearch::encode() of an earlier run; empty: none
    /// Keeps the state of the search; called in a job, with encode(). Empty: it is not kept.
    std::function<void(const std::string& state)> save = {};

    /// KV slots beside those of requests.
    [[nodiscard]] std::int32_t scratch_slots() const { return 2 * window; }
};

class SearchTrials {
public:
    /// Borrows the backend, which starts at layer 0 and has the head. Precondition: `options.state`
    /// is one that SkipSearch::restore() takes.
    SearchTrials(SearchTrialOptions options, Backend& backend, HeadId head);

    [[nodiscard]] const SearchTrialOptions& options() const { return options_; }
    [[nodiscard]] const SkipSearch& search() const { return search_; }
    void verified(int accepted, int drafted) { search_.verified(accepted, drafted); }

    /// Whether the search goes on and an answer of so many tokens has a window for it.
    [[nodiscard]] bool tries(Position answer) const {
        return search_.searching() && answer > options_.window;
    }
    /// Whether enough was found since the state was kept.
    [[nodiscard]] bool saves() const;
    /// Whether the job that was prepared is a trial, and does not only save the state.
    [[nodiscard]] bool trying() const { return trial_.has_value(); }

    /// `text`: what a trial is made on, whose newest token is predicted only; nothing: the job
    /// keeps the state alone. What it refers to stays as it is until finish(). Precondition of a
    /// trial: tries().
    void prepare(const std::optional<CachedText>& text, const SamplingParams* sampling);
    /// The slots are options().scratch_slots(). `cancel` may be nullptr.
    RunOutcome run(std::span<const KvSlot> scratch, const CancelToken* cancel);
    void finish(RunOutcome outcome);

    /// Sub-layers that rows of jobs have run since the last call. Not while a job runs.
    [[nodiscard]] std::uint64_t take_sublayers() { return std::exchange(sublayers_, 0); }

private:
    /// A set beside the best one so far, on the same window of a text.
    struct Trial {
        SkipSet set;
        SkipSet best;
        TextWindow window = {};
        double matchness = 0.0;  // of the set; this one and the next are the job's answer
        double best_matchness = 0.0;
    };

    SearchTrialOptions options_;
    Backend& backend_;
    SkipSearch search_;
    WindowMatch match_;
    int unsaved_ = 0;  // trials
    std::uint64_t sublayers_ = 0;

    // The job that was prepared.
    std::optional<Trial> trial_;
    std::string to_save_;  // empty: nothing
};

}  // namespace paceline
