// Variants as text: words of a command line, names in reports.
//
//     early-launch, finish-ahead; all
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
inline constexpr std::array<NamedVariants, 3> kNamedVariants{{
    {"early-launch", {true, false}},
    {"finish-ahead", {false, true}},
    {"all", kAllVariants},
}};

/// The switches of a list of words separated by commas. Errors: BadArgument for an unknown word (the
/// text names it and the allowed ones).
[[nodiscard]] Result<Variants> parse_variants(std::string_view list);

/// The list that parse_variants() reads; "base" if all are off.
[[nodiscard]] std::string variants_text(const Variants& variants);

}  // namespace paceline::cuda
