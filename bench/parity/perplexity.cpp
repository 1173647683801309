#include "bench/parity/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ipc/base/check.hpp"
#include "tests/support/parity.hpp"

namespace paceline::parity {
namespace {

/// -log of the share that softmax gives `token`.
double surprise(std::span<const float> logits, TokenId token) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    return std::log(sum) + largest - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

}  // namespace

Perplexity perplexity(Backend& backend,
                      std::span<const TokenId> tokens,
                      int window,
                      int batch_rows) {
    PACE_CHECK(window > 1 && tokens.size() > 1, "the first token of a window is not scored");
    const auto vocab_size = static_cast<std::size_t>(backend.config().vocab_size);
    const auto step = static_cast<std::size_t>(window);
    double loss = 0.0;
    int scored = 0;
    for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += step) {
        const std::span<const TokenId> part =
            tokens.subspan(begin, std::min(step, tokens.size() - begin));
        const std::vector<float> logits =
            testing::sequence_logits(backend, part.first(part.size() - 1), batch_rows);
        for (std::size_t i = 0; i + 1 < part.size(); ++i) {
            loss += surprise(std::span(logits).subspan(i * vocab_size, vocab_size), part[i + 1]);
            ++scored;
        }
    }
    return {std::exp(loss / scored), scored};
}

}  // namespace paceline::parity
