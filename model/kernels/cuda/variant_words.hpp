// Variants as text: words of a command line, names in reports.
//
//     early-launch, rows-ahead, finish-ahead, l2-128, l2-256, attention-rows; all
//
// Host logic without CUDA. Pure functions, any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"
#include "model/kernels/cuda/variants.hpp"

namespace paceline::cuda {

struct NamedVariants {
    std::string_view name;
    Variants variants;
};

/// Each switch alone, then "all".
inline constexpr std::array<NamedVariants, 7> kNamedVariants{{
    {"early-launch", {true, false, false, 0, false}},
    {"rows-ahead", {false, true, false, 0, false}},
    {"finish-ahead", {false, false, true, 0, false}},
    {"l2-128", {false, false, false, 128, false}},
    {"l2-256", {false, false, false, 256, false}},
    {"attention-rows", {false, false, false, 0, true}},
    {"all", kAllVariants},
}};

/// The switches of a list of words separated by commas. Errors: BadArgument for an unknown word (the
/// text names it and the allowed ones), for two L2 hints, and for a combination that the wave kernel
/// is not compiled for (variants.hpp).
[[nodiscard]] Result<Variants> parse_variants(std::string_view list);

/// The list that parse_variants() reads; "base" if all are off.
[[nodiscard]] std::string variants_text(const Variants& variants);

}  // namespace paceline::cuda
