#include "actors/target/skip_optimiser.hpp"

#include <algorithm>
#include <utility>

#include "actors/self_draft/layer_programme.hpp"
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
      set_{options.skip},
      candidates_{backend} {
    for (Position i = 0; i < options.scratch_slots(); ++i) {
        const Result<KvSlot> slot = scratch_.name(i);
        PACE_CHECK(slot.ok(), "a scratch slot that was reserved");
        slots_.push_back(slot.value());
    }
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
    ++all_verdicts_;
    if (!search_) return false;
    search_->verified(accepted, drafted);
    return take(search_->best());
}

bool SkipOptimiser::take(SkipSet set) {
    const bool changed = set != set_;
    set_ = std::move(set);
    return changed;
}

// ---- Jobs

/// What the next job will take: as the last one; the first by its rows, beside a round's time.
Micros SkipOptimiser::next_takes(Micros decoding) const {
    if (last_took_ > Micros{0}) return last_took_;
    return decoding * options_.scratch_slots() / (std::max(all_verdicts_, 1) * kRowsOfARound);
}

std::optional<JobLabel> SkipOptimiser::next(const std::shared_ptr<RequestState>& state,
                                            Micros decoding) {
    if (verdicts_ < options_.interval) return std::nullopt;
    const auto limit = static_cast<double>(decoding.count()) * options_.optimise_share;
    if (static_cast<double>((spent_ + next_takes(decoding)).count()) >= limit) return std::nullopt;
    switch (options_.choice) {
        case SkipChoice::Fixed:
            return std::nullopt;
        case SkipChoice::Search:
            return next_trial(state);
        case SkipChoice::Programme:
            return next_programme(state);
    }
    return std::nullopt;
}

std::optional<JobLabel> SkipOptimiser::next_trial(const std::shared_ptr<RequestState>& state) {
    const auto answer =
        static_cast<Position>(state->text().size()) - state->finish_rule().answer_begin;
    const bool searching = search_->searching() && answer > options_.window;
    const bool saves = options_.save && unsaved_ >= (search_->searching() ? kTrialsPerSave : 1);
    if (!searching && !saves) return std::nullopt;
    if (saves) to_save_ = search_->encode();
    text_ = state;
    rows_.clear();
    JobLabel label{.name = "optimise", .request = state->request()};
    if (!searching) return label;
    trial_ = search_->propose();
    trial_mask_ = trial_.mask();
    best_mask_ = search_->best().mask();
    // The newest token has no keys yet: it is only predicted.
    const auto begin = static_cast<Position>(state->text().size()) - 1 - options_.window;
    add_window(trial_mask_, 0, begin);
    add_window(best_mask_, static_cast<std::size_t>(options_.window), begin);
    label.rows = label.heads = static_cast<std::uint32_t>(rows_.size());
    label.layers = static_cast<std::uint32_t>(backend_.config().layers);
    label.context = begin + options_.window;
    return label;
}

void SkipOptimiser::add_window(const SublayerMask& mask, std::size_t first_slot, Position begin) {
    for (Position i = 0; i < options_.window; ++i) {
        const std::size_t own = first_slot + static_cast<std::size_t>(i);
        rows_.push_back({.token = text_->text()[static_cast<std::size_t>(begin + i)],
                         .position = begin + i,
                         .slot = slots_[own],
                         .prefix_slots = text_->slots().data(),
                         .prefix_count = begin,
                         .path_slots = slots_.data() + first_slot,
                         .path_count = i + 1,
                         .last = backend_.config().sublayers(),
                         .mask = &mask});
    }
}

std::optional<JobLabel> SkipOptimiser::next_programme(const std::shared_ptr<RequestState>& state) {
    // The text may have gone on since, in a round that was not drafted.
    const bool fits = stack_position_ && stack_request_ == state->request() &&
                      stack_attempt_ == state->attempt() &&
                      *stack_position_ + 2 == static_cast<Position>(state->text().size());
    if (!fits) return std::nullopt;
    text_ = state;
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
    if (rows_.empty()) return RunOutcome::Done;
    const HiddenRows hidden = backend_.rows_of(hidden_, rows_.size());
    const int run = 2 * backend_.config().sublayers() - trial_.count() - search_->best().count();
    sublayers_ += static_cast<std::uint64_t>(run) * static_cast<std::uint64_t>(options_.window);
    if (backend_.run_layers(rows_, hidden, nullptr) == RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    trial_matchness_ = matchness(0);
    best_matchness_ = matchness(static_cast<std::size_t>(options_.window));
    return RunOutcome::Done;
}

/// The share of the window's tokens that the rows from `first_row` on would have drafted.
double SkipOptimiser::matchness(std::size_t first_row) {
    const std::vector<TokenId>& text = text_->text();
    int right = 0;
    for (std::size_t begin = 0; begin < static_cast<std::size_t>(options_.window);
         begin += HeadCandidates::kRows) {
        const std::size_t count =
            std::min(HeadCandidates::kRows, static_cast<std::size_t>(options_.window) - begin);
        std::vector<RowSource> sources;
        std::vector<SeenTokens> seen;
        std::vector<DrawJob> jobs;
        std::vector<std::vector<Candidate>> best(count);
        for (std::size_t i = 0; i < count; ++i) {
            const Row& row = rows_[first_row + begin + i];
            sources.push_back({hidden_.rows, first_row + begin + i});
            seen.push_back(
                {.committed = std::span{text}.first(static_cast<std::size_t>(row.position) + 1),
                 .path = {}});
            jobs.push_back({&text_->spec().sampling, row.position + 1, 1});
        }
        candidates_.find(options_.head, backend_.in_order(sources, head_hidden_), seen, jobs, best);
        for (std::size_t i = 0; i < count; ++i) {
            const Row& row = rows_[first_row + begin + i];
            const TokenId next = text[static_cast<std::size_t>(row.position) + 1];
            right += !best[i].empty() && best[i].front().token == next ? 1 : 0;
        }
    }
    return static_cast<double>(right) / options_.window;
}

RunOutcome SkipOptimiser::run_programme() {
    const Position position = *stack_position_;
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const RunLayer run = [&](int layer, std::span<float> states) {
        const std::size_t rows = states.size() / dim;
        PACE_CHECK(rows <= slots_.size(), "more rows of a programme than scratch slots");
        rows_.clear();
        for (std::size_t i = 0; i < rows; ++i) {
            rows_.push_back({.position = position,
                             .slot = slots_[i],
                             .prefix_slots = text_->slots().data(),
                             .prefix_count = position,
                             .path_slots = &slots_[i],
                             .path_count = 1,
                             .first = 2 * layer,
                             .last = 2 * layer + 2});
        }
        sublayers_ += 2 * rows;
        return backend_.run_layers(rows_, states, nullptr) == RunOutcome::Done;
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
    text_.reset();
    stack_position_.reset();
    if (outcome == RunOutcome::Cancelled) return false;
    if (!to_save_.empty()) unsaved_ = 0;
    to_save_.clear();
    if (search_ && !rows_.empty()) {
        search_->judged(trial_, trial_matchness_, best_matchness_);
        ++unsaved_;
    }
    return take(search_ ? search_->best() : *std::exchange(chosen_, std::nullopt));
}

}  // namespace paceline
