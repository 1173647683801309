// What the steps before a text's tokens (TextStep) may ask for, whichever file states them: a few
// replacements of one byte by many would make gigabytes of a short text. Pure.
#pragma once

#include <algorithm>
#include <fmt/core.h>
#include <span>
#include <string>

#include "model/weights/model_file.hpp"

namespace paceline {
namespace text_step_limits {

inline constexpr std::size_t kStepsMax = 16;
inline constexpr std::size_t kStepBytesMax = 64;  // of either text of a step
inline constexpr std::size_t kGrowthMax = 36;     // of a text by all steps together

/// How many times longer a text may become by `step`, but for a text in front of it.
inline std::size_t growth_of(const TextStep& step) {
    switch (step.kind) {
        case TextStep::Kind::NormalFormC:
            return 3;  // U+1D160 and its like: one character of 4 bytes becomes three
        case TextStep::Kind::NormalFormKC:
            return 11;  // U+FDFA: 3 bytes become 33
        case TextStep::Kind::Prepend:
            return 1;
        case TextStep::Kind::Replace:
            return std::max<std::size_t>(
                1, (step.to.size() + step.from.size() - 1) / step.from.size());
    }
    return 1;
}

}  // namespace text_step_limits

/// Why the steps are too many, too long, or make too much of a text ("of 20 steps (more than 16)");
/// empty: they are not.
[[nodiscard]] inline std::string excess_of(std::span<const TextStep> steps) {
    using namespace text_step_limits;  // NOLINT(google-build-using-namespace): three constants
    if (steps.size() > kStepsMax)
        return fmt::format("of {} steps (more than {})", steps.size(), kStepsMax);
    std::size_t growth = 1;
    for (const TextStep& step : steps) {
        const std::size_t bytes = std::max(step.from.size(), step.to.size());
        if (bytes > kStepBytesMax)
            return fmt::format("with a text of {} bytes (more than {})", bytes, kStepBytesMax);
        growth *= growth_of(step);
        if (growth > kGrowthMax)
            return fmt::format("that may make a text more than {} times longer", kGrowthMax);
    }
    return {};
}

}  // namespace paceline
