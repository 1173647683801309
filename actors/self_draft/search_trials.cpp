#include "actors/self_draft/search_trials.hpp"

#include <array>
#include <vector>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

// Trials between two states on disk: a lost one is a few milliseconds of work.
constexpr int kTrialsPerSave = 8;

}  // namespace

SearchTrials::SearchTrials(SearchTrialOptions options, Backend& backend, HeadId head)
    : options_{std::move(options)},
      backend_{backend},
      search_{options_.search},
      match_{backend, head} {
    if (options_.state.empty()) return;
    const Status restored = search_.restore(options_.state);
    PACE_CHECK(restored.ok(), "the state of a search that was not validated");
}

bool SearchTrials::saves() const {
    return options_.save && unsaved_ >= (search_.searching() ? kTrialsPerSave : 1);
}

void SearchTrials::prepare(const std::optional<CachedText>& text, const SamplingParams* sampling) {
    if (saves()) to_save_ = search_.encode();
    if (!text) return;
    // The newest token has no keys yet: it is only predicted.
    const auto begin = static_cast<Position>(text->tokens.size()) - 1 - options_.window;
    trial_ = Trial{
        .set = search_.propose(),
        .best = search_.best(),
        .window = {.text = *text, .begin = begin, .count = options_.window, .sampling = sampling}};
}

RunOutcome SearchTrials::run(std::span<const KvSlot> scratch, const CancelToken* cancel) {
    if (!to_save_.empty()) options_.save(to_save_);
    if (!trial_) return RunOutcome::Done;
    const int run = 2 * backend_.config().sublayers() - trial_->set.count() - trial_->best.count();
    sublayers_ += static_cast<std::uint64_t>(run) * static_cast<std::uint64_t>(options_.window);
    const std::array masks{trial_->set.mask(), trial_->best.mask()};
    const std::vector<int> right = match_.right(trial_->window, masks, scratch, cancel);
    if (right.empty()) return RunOutcome::Cancelled;
    trial_->matchness = static_cast<double>(right[0]) / options_.window;
    trial_->best_matchness = static_cast<double>(right[1]) / options_.window;
    return RunOutcome::Done;
}

void SearchTrials::finish(RunOutcome outcome) {
    const std::optional<Trial> trial = std::exchange(trial_, std::nullopt);
    const bool saved = !std::exchange(to_save_, {}).empty();
    if (saved) unsaved_ = 0;  // it comes before anything that can be cancelled
    if (outcome == RunOutcome::Cancelled || !trial) return;
    search_.judged(trial->set, trial->matchness, trial->best_matchness);
    ++unsaved_;
}

}  // namespace paceline
