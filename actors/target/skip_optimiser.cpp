#include "actors/target/skip_optimiser.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "actors/self_draft/layer_programme.hpp"
#include "actors/self_draft/scratch_rows.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

namespace {

// Trials between two states on disk: a lost one is a few milliseconds of work.
constexpr int kTrialsPerSave = 8;
// Rows of a job that take as long as a round: a batch of many rows costs less for each.
constexpr int kRowsOfARound = 6;

}  // namespace

SkipOptimiser::SkipOptimiser(const SelfDraftOptions& options,
                             Backend& backend,
                             RequestSlots scratch)
    : options_{options},
      backend_{backend},
      scratch_{std::move(scratch)},
      slots_{name_scratch(scratch_, options.scratch_slots())},
      set_{options.skip},
      match_{backend, options.head} {
    if (options.choice != SkipChoice::Search) return;
    search_.emplace(options.search);
    if (!options.state.empty()) {
        const Status restored = search_->restore(options.state);
        PACE_CHECK(restored.ok(), "the state of a search that was not validated");
    }
    set_ = search_->best();
}

bool SkipOptimiser::wants_residuals() const {
    return options_.choice == SkipChoice::Programme && verdicts_ + 1 >= options_.interval;
}

void SkipOptimiser::take_residuals(const RequestState& state,
                                   Position position,
                                   std::span<const float> residuals) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto layers = static_cast<std::size_t>(backend_.config().layers);
    // h[0] is not read: the first layer is always kept.
    stack_.assign((layers + 1) * dim, 0.0F);
    for (std::size_t layer = 0; layer < layers; ++layer) {
        const auto after_layer = residuals.subspan((2 * layer + 1) * dim, dim);
        std::copy(after_layer.begin(), after_layer.end(),
                  stack_.begin() + static_cast<std::ptrdiff_t>((layer + 1) * dim));
    }
    stack_position_ = position;
    stack_request_ = state.request();
    stack_attempt_ = state.attempt();
}

bool SkipOptimiser::verified(int accepted, int drafted) {
    ++verdicts_;
    if (!search_) return false;
    search_->verified(accepted, drafted);
    return use(search_->best());
}

bool SkipOptimiser::use(SkipSet set) {
    const bool changed = set != set_;
    set_ = std::move(set);
    return changed;
}

// ---- Jobs

/// The next job's time: that of the last one; before the first one an estimate from its rows and the time of
/// a round.
Micros SkipOptimiser::next_job_time(Micros decoding) const {
    if (last_took_ > Micros{0}) return last_took_;
    return decoding * options_.scratch_slots() / (std::max(rounds_, 1) * kRowsOfARound);
}

std::optional<JobLabel> SkipOptimiser::next(const std::shared_ptr<RequestState>& state,
                                            Micros decoding,
                                            const std::function<bool(Micros)>& affords) {
    if (!due(*state)) return std::nullopt;
    // A job that only saves the state is not worth a budget.
    if (!search_ || tries(*state)) {
        const Micros job = next_job_time(decoding);
        const auto limit = static_cast<double>(decoding.count()) * options_.optimise_share;
        if (static_cast<double>((spent_ + job).count()) >= limit || !affords(job))
            return std::nullopt;
    }
    return search_ ? next_trial(state) : next_programme(state);
}

bool SkipOptimiser::due(const RequestState& state) const {
    if (verdicts_ < options_.interval) return false;
    if (search_) return tries(state) || saves();
    // The text may have gone on since the residuals, in a round that was not drafted.
    return stack_position_ && stack_request_ == state.request() &&
           stack_attempt_ == state.attempt() &&
           *stack_position_ + 2 == static_cast<Position>(state.text().size());
}

/// Whether the search goes on and the answer has a window for it.
bool SkipOptimiser::tries(const RequestState& state) const {
    const auto answer =
        static_cast<Position>(state.text().size()) - state.finish_rule().answer_begin;
    return search_->searching() && answer > options_.window;
}

bool SkipOptimiser::saves() const {
    return options_.save && unsaved_ >= (search_->searching() ? kTrialsPerSave : 1);
}

JobLabel SkipOptimiser::next_trial(const std::shared_ptr<RequestState>& state) {
    if (saves()) to_save_ = search_->encode();
    state_ = state;
    trial_.reset();
    JobLabel label{.name = "optimise", .request = state->request()};
    if (!tries(*state)) return label;
    // The newest token has no keys yet: it is only predicted.
    const auto begin = static_cast<Position>(state->text().size()) - 1 - options_.window;
    trial_ = Trial{.set = search_->propose(), .best = search_->best(), .begin = begin};
    label.rows = label.heads = static_cast<std::uint32_t>(2 * options_.window);
    label.layers = static_cast<std::uint32_t>(backend_.config().layers);
    label.context = begin + options_.window;
    return label;
}

JobLabel SkipOptimiser::next_programme(const std::shared_ptr<RequestState>& state) {
    state_ = state;
    return JobLabel{.name = "optimise",
                    .request = state->request(),
                    .rows = static_cast<std::uint32_t>(options_.programme_skip) + 1,
                    .layers = static_cast<std::uint32_t>(backend_.config().layers),
                    .context = *stack_position_ + 1};
}

RunOutcome SkipOptimiser::run() {
    return search_ ? run_trial() : run_programme();
}

RunOutcome SkipOptimiser::run_trial() {
    if (!to_save_.empty()) options_.save(to_save_);
    if (!trial_) return RunOutcome::Done;
    const int run = 2 * backend_.config().sublayers() - trial_->set.count() - trial_->best.count();
    sublayers_ += static_cast<std::uint64_t>(run) * static_cast<std::uint64_t>(options_.window);
    const std::array masks{trial_->set.mask(), trial_->best.mask()};
    const std::vector<int> right = match_.right({.text = {state_->text(), state_->slots()},
                                                 .begin = trial_->begin,
                                                 .count = options_.window,
                                                 .sampling = &state_->spec().sampling},
                                                masks, slots_);
    if (right.empty()) return RunOutcome::Cancelled;
    trial_->matchness = static_cast<double>(right[0]) / options_.window;
    trial_->best_matchness = static_cast<double>(right[1]) / options_.window;
    return RunOutcome::Done;
}

RunOutcome SkipOptimiser::run_programme() {
    const Position position = *stack_position_;
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const RunLayer run = [&](int layer, std::span<float> states) {
        sublayers_ += 2 * states.size() / dim;
        return run_one_layer(backend_, layer, state_->slots(), position, slots_, states) ==
               RunOutcome::Done;
    };
    const ProgrammeResult result = choose_layers(stack_,
                                                 {.layers = backend_.config().layers,
                                                  .skip = options_.programme_skip,
                                                  .keep_first = options_.programme_keep_first,
                                                  .keep_last = options_.programme_keep_last},
                                                 run);
    if (!result.done) return RunOutcome::Cancelled;
    chosen_ = result.set;
    return RunOutcome::Done;
}

bool SkipOptimiser::finish(RunOutcome outcome, Micros took) {
    spent_ += took;
    last_took_ = took;
    verdicts_ = 0;
    state_.reset();
    stack_position_.reset();
    if (outcome == RunOutcome::Cancelled) return false;
    if (!to_save_.empty()) unsaved_ = 0;
    to_save_.clear();
    if (trial_) {
        search_->judged(trial_->set, trial_->matchness, trial_->best_matchness);
        trial_.reset();
        ++unsaved_;
    }
    return use(search_ ? search_->best() : *std::exchange(chosen_, std::nullopt));
}

}  // namespace paceline
