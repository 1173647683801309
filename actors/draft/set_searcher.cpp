#include "actors/draft/set_searcher.hpp"

namespace paceline {
namespace {

// Rows of a job that take as long as a pass, which has one or a few.
constexpr int kRowsOfAPass = 2;

}  // namespace

SetSearcher::SetSearcher(DraftModel& model, const SearchTrialOptions& options)
    : model_{model},
      scratch_{model.cache(), options.scratch_slots()},
      trials_{options, model.backend(), model.head()},
      budget_{options.optimise_share, options.scratch_slots(), kRowsOfAPass} {
    (void)use_best();
}

void SetSearcher::passed(Micros took) {
    decoding_ += took;
    budget_.round_ended();
}

void SetSearcher::verified(int accepted, int drafted) {
    ++verdicts_;
    trials_.verified(accepted, drafted);
}

/// Whether the search goes on, and the answer has a window that it can be tried on.
bool SetSearcher::tries(const DraftRequest& request) const {
    const auto begin =
        static_cast<Position>(request.text->tokens.size()) - 1 - trials_.options().window;
    return trials_.tries(request.answer_tokens()) && begin >= 0 &&
           DraftCache::has_read(*request.text, begin);
}

std::optional<JobLabel> SetSearcher::next(const DraftRequest& request) {
    if (verdicts_ < trials_.options().interval) return std::nullopt;
    JobLabel label{.name = "optimise", .request = request.id};
    if (!tries(request)) {
        if (!trials_.saves()) return std::nullopt;
        trials_.prepare(std::nullopt, nullptr);
        label.rows = 1;  // no job has none
        return label;
    }
    if (!budget_.allows(budget_.next_job(decoding_), decoding_)) return std::nullopt;
    text_ = request.text;
    tokens_ = text_->tokens;
    const std::int32_t rows = trials_.options().scratch_slots();
    const auto begin = static_cast<Position>(tokens_.size()) - 1 - trials_.options().window;
    const std::vector<KvSlot>& read = text_->cache->slots.committed();
    slots_.assign(read.begin(), read.begin() + begin);
    trials_.prepare(CachedText{tokens_, slots_}, &text_->sampling);
    label.rows = label.heads = static_cast<std::uint32_t>(rows);
    label.layers = static_cast<std::uint32_t>(model_.backend().config().layers);
    label.context = static_cast<Position>(tokens_.size()) - 1;
    return label;
}

RunOutcome SetSearcher::run(const CancelToken& cancel) {
    return trials_.run(scratch_.slots(), &cancel);
}

void SetSearcher::finish(RunOutcome outcome, Micros took) {
    const bool whole = outcome == RunOutcome::Done && trials_.trying();
    text_.reset();
    trials_.finish(outcome);
    budget_.job_ended(took, whole);
    verdicts_ = 0;
    made_ += whole ? 1 : 0;
}

bool SetSearcher::use_best() {
    const SkipSet& best = trials_.search().best();
    if (best == model_.skip()) return false;
    model_.set_skip(best);
    return true;
}

}  // namespace paceline
