// The heads of Forward: hidden states to logits.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "model/cpu/forward.hpp"
#include "model/cpu/forward_scratch.hpp"

namespace paceline {
namespace {

/// logits[0 .. tokens) are those of the listed tokens: each moves to its token's place, all other
/// places become -inf. Backwards, for a token's place is never before its place in the list.
void spread(const std::vector<TokenId>& tokens, int vocab, float* logits) {
    int end = vocab;
    for (int i = static_cast<int>(tokens.size()) - 1; i >= 0; --i) {
        const int token = tokens[static_cast<std::size_t>(i)];
        const float logit = logits[i];
        std::fill(logits + token + 1, logits + end, -std::numeric_limits<float>::infinity());
        logits[token] = logit;
        end = token;
    }
    std::fill(logits, logits + end, -std::numeric_limits<float>::infinity());
}

}  // namespace

void Forward::point_at_rows(Logits logits, int rows) {
    for (int r = 0; r < rows; ++r) {
        logits_rows_[static_cast<std::size_t>(r)] =
            logits.data + static_cast<std::ptrdiff_t>(r) * logits.width;
    }
}

void Forward::head(const float* hidden, int rows, float* logits) {
    point_at_rows({logits, config_.vocab_size}, rows);
    auto work = [&](int thread) {
        const PackedInputs x =
            pack_rows(thread, rows, config_.dim, type_bit(weights_.head()),
                      [&](int r, Columns columns, float* out) {
                          norm_columns(hidden + static_cast<std::ptrdiff_t>(r) * config_.dim,
                                       weights_.output_norm(), columns, out);
                      });
        multiply(thread, weights_.head(), x, logits_rows_.data(), false);
    };
    team_.run(work);
}

/// Element by element, so the bits do not depend on where a stretch begins.
void Forward::add_silu(const float* turned, Columns columns, float* out) const {
    constexpr int kStretch = 64;
    std::array<float, kStretch> ones{};
    std::array<float, kStretch> silu{};
    ones.fill(1.0f);
    for (int first = columns.first; first < columns.last; first += kStretch) {
        const int count = std::min(kStretch, columns.last - first);
        kernels_.silu_mul(turned + first, ones.data(), count, silu.data());
        for (int i = 0; i < count; ++i) out[first + i] += silu[static_cast<std::size_t>(i)];
    }
}

void Forward::head(const CpuHead& head, const float* hidden, int rows, Logits logits) {
    point_at_rows(logits, rows);
    // `block`: T n of the rows, for a residual block's n + SiLU(T n).
    const auto pack = [&](int thread, const PackedMatrix& matrix, const float* from, bool normed,
                          const float* block) {
        return pack_rows(
            thread, rows, config_.dim, type_bit(matrix), [&](int r, Columns columns, float* out) {
                const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(r) * config_.dim;
                const float* row = from + at;
                if (normed) {
                    norm_columns(row, weights_.output_norm(), columns, out);
                    if (block != nullptr) add_silu(block + at, columns, out);
                    return;
                }
                std::memcpy(out + columns.first, row + columns.first,
                            static_cast<std::size_t>(columns.last - columns.first) * sizeof(float));
            });
    };
    const bool transforms = head.transform.rows > 0;
    const bool residual = head.block == HeadBlock::Residual;
    auto work = [&](int thread) {
        if (transforms) {
            const PackedInputs h = pack(thread, head.transform, hidden, head.norm_first, nullptr);
            multiply(thread, head.transform, h, turned_rows_.data(), false);
            team_.barrier();
        }
        const PackedInputs x = residual
                                   ? pack(thread, head.output, hidden, true, turned_.data())
                                   : pack(thread, head.output, transforms ? turned_.data() : hidden,
                                          !transforms || !head.norm_first, nullptr);
        multiply(thread, head.output, x, logits_rows_.data(), false);
        if (head.output.rows == logits.width) return;
        team_.barrier();
        for (int r = thread; r < rows; r += team_.size())
            spread(head.tokens, config_.vocab_size, logits_rows_[static_cast<std::size_t>(r)]);
    };
    team_.run(work);
}

}  // namespace paceline
