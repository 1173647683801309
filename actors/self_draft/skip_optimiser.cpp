#include "actors/self_draft/skip_optimiser.hpp"

#include <algorithm>
#include <utility>

#include "actors/self_draft/layer_skip_dp.hpp"
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
    if (options.choice != SkipChoice::Search) return;
    trials_.emplace(SearchTrialOptions{.search = options.search,
                                       .window = options.window,
                                       .state = options.state,
                                       .save = options.save},
                    backend_, options.head);
    set_ = trials_->search().best();
}

std::uint64_t SkipOptimiser::take_sublayers() {
    return std::exchange(sublayers_, 0) + (trials_ ? trials_->take_sublayers() : 0);
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
    return trials_ ? next_trial(state) : next_programme(state);
}

bool SkipOptimiser::due(const RequestState& state) const {
    if (verdicts_ < options_.interval) return false;
    if (trials_) return tries(state) || trials_->saves();
    // The text may have gone on since the residuals, in a round that was not drafted.
    return stack_position_ && stack_request_ == state.request() &&
           stack_attempt_ == state.attempt() &&
           *stack_position_ + 2 == static_cast<Position>(state.text().size());
}

bool SkipOptimiser::tries(const RequestState& state) const {
    const auto answer =
        static_cast<Position>(state.text().size()) - state.finish_rule().answer_begin;
    return trials_->tries(answer);
}

JobLabel SkipOptimiser::next_trial(const std::shared_ptr<RequestState>& state) {
    state_ = state;
    JobLabel label{.name = "optimise", .request = state->request()};
    if (!tries(*state)) {
        trials_->prepare(std::nullopt, nullptr);
        return label;
    }
    trials_->prepare(CachedText{state->text(), state->slots()}, &state->spec().sampling);
    label.rows = label.heads = static_cast<std::uint32_t>(options_.scratch_slots());
    label.layers = static_cast<std::uint32_t>(backend_.config().layers);
    label.context = static_cast<Position>(state->text().size()) - 1;
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
    return trials_ ? trials_->run(slots_, nullptr) : run_programme();
}

RunOutcome SkipOptimiser::run_programme() {
    const Position position = *stack_position_;
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const RunLayer run = [&](int layer, std::span<float> states) {
        sublayers_ += 2 * states.size() / dim;
        return run_one_layer(backend_, layer, state_->slots(), position, slots_, states) ==
               RunOutcome::Done;
    };
    const LayerSkipDpResult result = choose_layers(stack_,
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
    const bool whole = outcome == RunOutcome::Done && (!trials_ || trials_->trying());
    budget_.job_ended(took, whole);
    verdicts_ = 0;
    state_.reset();
    stack_position_.reset();
    if (trials_) {
        trials_->finish(outcome);
        return use(trials_->search().best());
    }
    if (outcome == RunOutcome::Cancelled) return false;
    return use(*std::exchange(chosen_, std::nullopt));
}

}  // namespace paceline
