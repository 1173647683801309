#include "actors/draft/layer_chooser.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

LayerChooser::LayerChooser(DraftModel& model, const LayerSkipDpOptions& options)
    : model_{model},
      options_{options},
      scratch_{model.cache(), rows()},
      there_(static_cast<std::size_t>(options.layers)) {
    PACE_CHECK(options.keep_first >= 1, "the segments send no residual before the first layer");
    residuals_.resize((there_.size() + 1) * static_cast<std::size_t>(model.backend().config().dim));
}

Status LayerChooser::take(const msg::TensorNote& note, ConstHiddenRows residuals) {
    const auto dim = static_cast<std::uint64_t>(model_.backend().config().dim);
    const std::uint64_t layers = note.row_elements / dim;
    const auto all = static_cast<std::uint64_t>(options_.layers);
    if (note.role != msg::TensorRole::Tap || note.type != msg::TensorType::F32 || note.rows != 1 ||
        layers == 0 || note.row_elements % dim != 0 || note.layer >= all ||
        layers > all - note.layer || residuals.size() != note.row_elements) {
        return Error{Errc::Protocol,
                     fmt::format("a tap of {} numbers from layer {} on does not fit a model of {} "
                                 "layers of {}",
                                 note.row_elements, note.layer, options_.layers, dim)};
    }
    const bool same = missing_ >= 0 && note.route.request == route_.request &&
                      note.route.attempt == route_.attempt && note.first_position == position_;
    if (!same) {
        route_ = note.route;
        position_ = note.first_position;
        missing_ = options_.layers;
        std::fill(there_.begin(), there_.end(), false);
    }
    for (std::uint64_t i = 0; i < layers; ++i) {
        std::vector<bool>::reference known = there_[note.layer + i];
        missing_ -= known ? 0 : 1;
        known = true;
    }
    model_.backend().copy(residuals,
                          std::span{residuals_}.subspan((note.layer + 1) * dim, layers * dim));
    return {};
}

std::optional<msg::Route> LayerChooser::complete() const {
    return missing_ == 0 ? std::optional{route_} : std::nullopt;
}

bool LayerChooser::can_run(const DraftText& text) const {
    return DraftCache::has_read(text, position_);
}

void LayerChooser::prepare(std::shared_ptr<DraftText> text) {
    text_ = std::move(text);
    at_ = position_;
    stack_ = residuals_;
    missing_ = -1;
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
