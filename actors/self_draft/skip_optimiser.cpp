#include "actors/self_draft/skip_optimiser.hpp"

#include <algorithm>
#include <utility>

#include "actors/self_draft/scratch_rows.hpp"

namespace paceline {

namespace {

// Rows of a job that take as long as a round: a batch of many rows costs less for each.
constexpr int kRowsOfARound = 6;

}  // namespace

SkipOptimiser::SkipOptimiser(const SelfDraftOptions& options,
                             Backend& backend,
                             RequestSlots scratch)
    : options_{options},
      backend_{backend},
      scratch_{std::move(scratch)},
      slots_{allocate_scratch(scratch_, options.scratch_slots())},
      set_{options.skip},
      budget_{options.optimise_share, options.scratch_slots(), kRowsOfARound} {
    if (options.choice == SkipChoice::Programme) programme_.emplace(options, backend);
    if (options.choice != SkipChoice::Search) return;
    trials_.emplace(SearchTrialOptions{.search = options.search,
                                       .window = options.window,
                                       .state = options.state,
                                       .save = options.save},
                    backend_, options.head);
    set_ = trials_->search().best();
}

std::uint64_t SkipOptimiser::take_sublayers() {
    if (programme_) return programme_->take_sublayers();
    return trials_ ? trials_->take_sublayers() : 0;
}

bool SkipOptimiser::wants_residuals() const {
    return programme_ && verdicts_ + 1 >= options_.interval;
}

void SkipOptimiser::take_residuals(const RequestState& state,
                                   Position position,
                                   std::span<const float> residuals) {
    if (programme_) programme_->take_residuals(state, position, residuals);
}

bool SkipOptimiser::verified(int accepted, int drafted) {
    ++verdicts_;
    if (!trials_) return false;
    trials_->verified(accepted, drafted);
    return use(trials_->search().best());
}

bool SkipOptimiser::use(SkipSet set) {
    const bool changed = set != set_;
    set_ = std::move(set);
    return changed;
}

// ---- Jobs

std::optional<JobLabel> SkipOptimiser::next(const std::shared_ptr<RequestState>& state,
                                            Micros decoding,
                                            const std::function<bool(Micros)>& affords) {
    if (!due(*state)) return std::nullopt;
    // A job that only saves the state is not worth a budget.
    if (!trials_ || tries(*state)) {
        const Micros job = budget_.next_job(decoding);
        if (!budget_.allows(job, decoding) || !affords(job)) return std::nullopt;
    }
    state_ = state;
    return trials_ ? next_trial(*state) : programme_->label(*state);
}

bool SkipOptimiser::due(const RequestState& state) const {
    if (verdicts_ < options_.interval) return false;
    if (trials_) return tries(state) || trials_->saves();
    return programme_ && programme_->due(state);
}

bool SkipOptimiser::tries(const RequestState& state) const {
    const auto answer =
        static_cast<Position>(state.text().size()) - state.finish_rule().answer_begin;
    return trials_->tries(answer);
}

JobLabel SkipOptimiser::next_trial(const RequestState& state) {
    JobLabel label{.name = "optimise", .request = state.request()};
    if (!tries(state)) {
        trials_->prepare(std::nullopt, nullptr);
        return label;
    }
    trials_->prepare(CachedText{state.text(), state.slots()}, &state.spec().sampling);
    label.rows = label.heads = static_cast<std::uint32_t>(options_.scratch_slots());
    label.layers = static_cast<std::uint32_t>(backend_.config().layers);
    label.context = static_cast<Position>(state.text().size()) - 1;
    return label;
}

RunOutcome SkipOptimiser::run() {
    return trials_ ? trials_->run(slots_, nullptr) : programme_->run(*state_, slots_);
}

bool SkipOptimiser::finish(RunOutcome outcome, Micros took) {
    const bool whole = outcome == RunOutcome::Done && (!trials_ || trials_->trying());
    budget_.job_ended(took, whole);
    verdicts_ = 0;
    state_.reset();
    if (trials_) {
        trials_->finish(outcome);
        return use(trials_->search().best());
    }
    std::optional<SkipSet> chosen = programme_->finish(outcome);
    return chosen && use(std::move(*chosen));
}

}  // namespace paceline
