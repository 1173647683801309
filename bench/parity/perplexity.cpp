#include "bench/parity/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
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

double mean(std::span<const double> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double Perplexity::value() const {
    return std::exp(mean(losses));
}

PerplexityRatio compare(const Perplexity& one, const Perplexity& other) {
    const std::size_t count = one.losses.size();
    PACE_CHECK(count == other.losses.size() && count > 1, "the same tokens");
    std::vector<double> more(count);
    for (std::size_t i = 0; i < count; ++i) more[i] = one.losses[i] - other.losses[i];
    const double middle = mean(more);
    double squares = 0.0;
    for (const double each : more) squares += (each - middle) * (each - middle);
    const auto n = static_cast<double>(count);
    // A small ratio's logarithm is the ratio itself: so is its error.
    return {std::exp(middle) - 1.0, std::sqrt(squares / (n - 1.0) / n)};
}

Perplexity perplexity(Backend& backend,
                      std::span<const TokenId> tokens,
                      int window,
                      int batch_rows) {
    PACE_CHECK(window > 1 && tokens.size() > 1, "the first token of a window is not scored");
    const auto vocab_size = static_cast<std::size_t>(backend.config().vocab_size);
    const auto step = static_cast<std::size_t>(window);
    Perplexity result;
    for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += step) {
        const std::span<const TokenId> part =
            tokens.subspan(begin, std::min(step, tokens.size() - begin));
        const std::vector<float> logits =
            testing::sequence_logits(backend, part.first(part.size() - 1), batch_rows);
        for (std::size_t i = 0; i + 1 < part.size(); ++i) {
            result.losses.push_back(
                surprise(std::span(logits).subspan(i * vocab_size, vocab_size), part[i + 1]));
        }
    }
    return result;
}

}  // namespace paceline::parity
