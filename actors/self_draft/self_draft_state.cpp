#include "actors/self_draft/self_draft_state.hpp"

#include <algorithm>
#include <cmath>

#include "actors/protocol/counters.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kPlain = 1;
constexpr std::uint64_t kDrafts = 2;
constexpr double kGainUnit = 1e3;
constexpr double kShareUnit = 1e6;
constexpr std::uint64_t kGainMost = 1'000'000;  // a thousandfold
constexpr std::uint64_t kShareMost = 1'000'000;
constexpr std::uint64_t kTrialsMost = 1U << 30;
constexpr std::array<Gauge, gauges::kSkippedWords> kWords{
    gauges::skipped_word(0), gauges::skipped_word(1), gauges::skipped_word(2),
    gauges::skipped_word(3)};
constexpr int kBits = 64 * static_cast<int>(gauges::kSkippedWords);

std::uint64_t fixed(double value, double unit, std::uint64_t most) {
    if (!(value > 0.0)) return 0;
    const double scaled = std::min(value * unit, static_cast<double>(most));
    return static_cast<std::uint64_t>(std::llround(scaled));
}

}  // namespace

void show(Context& context, const SelfDraftState& state) {
    context.set(gauges::kDraftGain, fixed(state.gain, kGainUnit, kGainMost));
    context.set(gauges::kDraftThreshold, fixed(state.threshold, kShareUnit, kShareMost));
    context.set(gauges::kMatchness, fixed(state.matchness, kShareUnit, kShareMost));
    context.set(gauges::kTrials, static_cast<std::uint64_t>(std::max(state.trials, 0)));
    context.set(gauges::kSkipped, static_cast<std::uint64_t>(std::max(state.skipped_count, 0)));
    std::array<std::uint64_t, gauges::kSkippedWords> words{};
    const int shown = state.skipped ? std::min(2 * state.skipped->layers(), kBits) : 0;
    for (int s = 0; s < shown; ++s) {
        const std::uint64_t bit = state.skipped->skips(s) ? 1 : 0;
        words[static_cast<std::size_t>(s) / 64] |= bit << (static_cast<unsigned>(s) % 64U);
    }
    for (std::size_t w = 0; w < words.size(); ++w) context.set(kWords[w], words[w]);
    context.set(gauges::kDraftPhase, state.drafts ? kDrafts : kPlain);
}

std::optional<SelfDraftState> self_draft_state(const std::array<std::uint64_t, kGauges>& all,
                                               int layers) {
    const auto of = [&](Gauge gauge) { return all[static_cast<std::size_t>(gauge)]; };
    const std::uint64_t phase = of(gauges::kDraftPhase);
    const auto sublayers = 2 * static_cast<std::uint64_t>(std::max(layers, 0));
    const bool holds =
        (phase == kPlain || phase == kDrafts) && of(gauges::kDraftGain) <= kGainMost &&
        of(gauges::kDraftThreshold) <= kShareMost && of(gauges::kMatchness) <= kShareMost &&
        of(gauges::kTrials) <= kTrialsMost && of(gauges::kSkipped) <= sublayers;
    if (!holds) return std::nullopt;
    SelfDraftState state{.drafts = phase == kDrafts,
                         .gain = static_cast<double>(of(gauges::kDraftGain)) / kGainUnit,
                         .threshold = static_cast<double>(of(gauges::kDraftThreshold)) / kShareUnit,
                         .matchness = static_cast<double>(of(gauges::kMatchness)) / kShareUnit,
                         .trials = static_cast<int>(of(gauges::kTrials)),
                         .skipped_count = static_cast<int>(of(gauges::kSkipped))};
    SkipSet set{layers};
    for (int s = 0; s < kBits; ++s) {
        const std::uint64_t word = of(kWords[static_cast<std::size_t>(s) / 64]);
        if (((word >> (static_cast<unsigned>(s) % 64U)) & 1U) == 0) continue;
        if (s >= 2 * layers) return std::nullopt;
        set.set(s, true);
    }
    if (2 * layers <= kBits && set.count() == state.skipped_count) state.skipped = std::move(set);
    return state;
}

}  // namespace paceline
