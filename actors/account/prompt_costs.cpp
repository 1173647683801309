#include "actors/account/prompt_costs.hpp"

#include <algorithm>
#include <bit>

namespace paceline {

std::size_t PromptCosts::size_of(std::uint64_t context) {
    constexpr std::uint64_t kUnit = 256;  // contexts below it cost about the same
    return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(context / kUnit)),
                                 kSizes - 1);
}

void PromptCosts::learn(const PromptRows& prompts, double extra_us) {
    if (prompts.rows == 0) return;
    by_context_[size_of(prompts.context)].add(extra_us / prompts.rows);
}

double PromptCosts::row_us(std::uint64_t context) const {
    const std::size_t size = size_of(context);
    for (std::size_t distance = 0; distance < kSizes; ++distance) {
        for (const std::size_t at : {size - distance, size + distance}) {
            if (at < kSizes && by_context_[at].known()) return by_context_[at].mean();
        }
    }
    return 0.0;
}

}  // namespace paceline
