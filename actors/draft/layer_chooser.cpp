#include "actors/draft/layer_chooser.hpp"

#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

LayerChooser::LayerChooser(DraftModel& model, const LayerSkipDpOptions& options)
    : model_{model},
      options_{options},
      scratch_{model.cache(), rows()},
      taps_{model.backend(), options.layers} {
    PACE_CHECK(options.keep_first >= 1, "the segments send no residual before the first layer");
}

bool LayerChooser::can_run(const DraftText& text) const {
    return DraftCache::has_read(text, taps_.position());
}

void LayerChooser::prepare(std::shared_ptr<DraftText> text) {
    text_ = std::move(text);
    at_ = taps_.position();
    stack_.assign(taps_.residuals().begin(), taps_.residuals().end());
    taps_.drop();
}

RunOutcome LayerChooser::run() {
    const LayerSkipDpResult result =
        choose_layers(stack_, options_, [&](int layer, std::span<float> states) {
            return run_one_layer(model_.backend(), layer, text_->cache->slots.committed(), at_,
                                 scratch_.slots(), states) == RunOutcome::Done;
        });
    if (!result.done) return RunOutcome::Cancelled;
    chosen_ = result.set;
    return RunOutcome::Done;
}

bool LayerChooser::finish(RunOutcome outcome) {
    text_.reset();
    const std::optional<SkipSet> chosen = std::exchange(chosen_, std::nullopt);
    if (outcome == RunOutcome::Cancelled || !chosen) return false;
    ++made_;
    if (*chosen == model_.skip()) return false;
    model_.set_skip(*chosen);
    return true;
}

}  // namespace paceline
