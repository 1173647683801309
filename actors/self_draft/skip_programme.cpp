#include "actors/self_draft/skip_programme.hpp"

#include <algorithm>

#include "actors/self_draft/scratch_rows.hpp"

namespace paceline {

SkipProgramme::SkipProgramme(const SelfDraftOptions& options, Backend& backend)
    : options_{.layers = backend.config().layers,
               .skip = options.programme_skip,
               .keep_first = options.programme_keep_first,
               .keep_last = options.programme_keep_last},
      backend_{backend} {}

void SkipProgramme::take_residuals(const RequestState& state,
                                   Position position,
                                   std::span<const float> residuals) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto layers = static_cast<std::size_t>(options_.layers);
    // h[0] is not read: the first layer is always kept.
    stack_.assign((layers + 1) * dim, 0.0F);
    for (std::size_t layer = 0; layer < layers; ++layer) {
        const auto after_layer = residuals.subspan((2 * layer + 1) * dim, dim);
        std::copy(after_layer.begin(), after_layer.end(),
                  stack_.begin() + static_cast<std::ptrdiff_t>((layer + 1) * dim));
    }
    position_ = position;
    request_ = state.request();
    attempt_ = state.attempt();
}

bool SkipProgramme::due(const RequestState& state) const {
    return position_ && request_ == state.request() && attempt_ == state.attempt() &&
           *position_ + 2 == static_cast<Position>(state.text().size());
}

JobLabel SkipProgramme::label(const RequestState& state) const {
    return JobLabel{.name = "optimise",
                    .request = state.request(),
                    .rows = static_cast<std::uint32_t>(options_.skip) + 1,
                    .layers = static_cast<std::uint32_t>(options_.layers),
                    .context = *position_ + 1};
}

RunOutcome SkipProgramme::run(const RequestState& state, std::span<const KvSlot> scratch) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const RunLayer run = [&](int layer, std::span<float> states) {
        sublayers_ += 2 * states.size() / dim;
        return run_one_layer(backend_, layer, state.slots(), *position_, scratch, states) ==
               RunOutcome::Done;
    };
    const LayerSkipDpResult result = choose_layers(stack_, options_, run);
    if (!result.done) return RunOutcome::Cancelled;
    chosen_ = result.set;
    return RunOutcome::Done;
}

std::optional<SkipSet> SkipProgramme::finish(RunOutcome outcome) {
    position_.reset();
    std::optional<SkipSet> chosen = std::exchange(chosen_, std::nullopt);
    return outcome == RunOutcome::Done ? chosen : std::nullopt;
}

}  // namespace paceline
