#include "actors/draft/tap_stack.hpp"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>

namespace paceline {

TapStack::TapStack(Backend& backend, int layers)
    : backend_{backend},
      there_(static_cast<std::size_t>(layers)),
      residuals_((there_.size() + 1) * static_cast<std::size_t>(backend.config().dim)) {}

Status TapStack::take(const msg::TensorNote& note, ConstHiddenRows residuals) {
    const auto dim = static_cast<std::uint64_t>(backend_.config().dim);
    const std::uint64_t layers = note.row_elements / dim;
    const std::uint64_t all = there_.size();
    if (note.role != msg::TensorRole::Tap || note.type != msg::TensorType::F32 || note.rows != 1 ||
        layers == 0 || note.row_elements % dim != 0 || note.layer >= all ||
        layers > all - note.layer || residuals.size() != note.row_elements) {
        return Error{Errc::Protocol,
                     fmt::format("a tap of {} numbers from layer {} on does not fit a model of {} "
                                 "layers of {}",
                                 note.row_elements, note.layer, all, dim)};
    }
    const bool same = missing_ >= 0 && note.route.request == route_.request &&
                      note.route.attempt == route_.attempt && note.first_position == position_;
    if (!same) {
        route_ = note.route;
        position_ = note.first_position;
        missing_ = static_cast<int>(there_.size());
        std::fill(there_.begin(), there_.end(), false);
    }
    for (std::uint64_t i = 0; i < layers; ++i) {
        std::vector<bool>::reference known = there_[note.layer + i];
        missing_ -= known ? 0 : 1;
        known = true;
    }
    backend_.copy(residuals, std::span{residuals_}.subspan((note.layer + 1) * dim, layers * dim));
    return {};
}

}  // namespace paceline
