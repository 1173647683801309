#include "model/sampling/token_mask.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"

namespace paceline {

std::optional<TokenId> TokenMask::only() const {
    std::optional<TokenId> found;
    for (std::size_t i = 0; i < words_.size(); ++i) {
        if (words_[i] == 0) continue;
        if (found || !std::has_single_bit(words_[i])) return std::nullopt;
        found = static_cast<TokenId>(i * 32) + std::countr_zero(words_[i]);
    }
    return found;
}

void TokenMask::apply(std::span<float> logits) const {
    PACE_CHECK(logits.size() == vocab_, "a mask of another vocabulary");
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < words_.size(); ++i) {
        const std::uint32_t word = words_[i];
        if (word == ~0U) continue;
        const std::span<float> part =
            logits.subspan(i * 32, std::min<std::size_t>(32, vocab_ - i * 32));
        if (word == 0) {  // most words of most masks
            std::fill(part.begin(), part.end(), kNever);
            continue;
        }
        for (std::size_t bit = 0; bit < part.size(); ++bit)
            if ((word >> bit & 1U) == 0) part[bit] = kNever;
    }
}

}  // namespace paceline
