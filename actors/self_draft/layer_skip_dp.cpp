#include "actors/self_draft/layer_skip_dp.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace paceline {
namespace {

/// One column of the programme after another: the states g[i][0 .. skip] of the present i.
class LayerSkipDp {
public:
    LayerSkipDp(std::span<const float> stack, const LayerSkipDpOptions& options)
        : stack_{stack},
          options_{options},
          dim_{stack.size() / static_cast<std::size_t>(options.layers + 1)},
          states_(static_cast<std::size_t>(options.skip + 1) * dim_),
          kept_(states_.size()),
          skipped_(static_cast<std::size_t>(options.layers + 1),
                   std::vector<bool>(static_cast<std::size_t>(options.skip + 1))) {
        std::copy_n(stack_.begin(), dim_, states_.begin());
    }

    /// From g[layer] to g[layer + 1]. False: cancelled.
    bool advance(int layer, const RunLayer& run) {
        const bool may_skip = skippable(layer);
        const int before = skippable_below(layer);
        // A state with j skipped exists for j <= before; it leads to `skip` from `least` on.
        const int most = std::min(options_.skip, before + (may_skip ? 1 : 0));
        const int least = std::max(0, options_.skip - skippable_from(layer + 1));
        const int first_row = std::max(least, 1);  // g[i][0] is h[i]
        const int rows = std::max(0, std::min(most, before) - first_row + 1);
        const auto size = static_cast<std::size_t>(rows) * dim_;
        if (rows > 0) {
            std::copy_n(state(first_row).data(), size, kept_.data());
            if (!run(layer, {kept_.data(), size})) return false;
        }
        const std::span<const float> wanted = h(layer + 1);
        for (int j = most; j >= first_row; --j) {  // downwards: g[i-1][j-1] is still there
            const bool can_keep = j <= before;
            const auto row = static_cast<std::size_t>(j - first_row);
            const std::span<const float> keep = row_of(kept_, can_keep ? row : 0);
            const bool skips =
                may_skip && (!can_keep || cosine(keep, wanted) < cosine(state(j - 1), wanted));
            const std::span<const float> chosen = skips ? state(j - 1) : keep;
            std::copy(chosen.begin(), chosen.end(), state(j).begin());
            skipped_[static_cast<std::size_t>(layer) + 1][static_cast<std::size_t>(j)] = skips;
        }
        std::copy(wanted.begin(), wanted.end(), state(0).begin());
        return true;
    }

    [[nodiscard]] LayerSkipDpResult result() {
        LayerSkipDpResult result{SkipSet{options_.layers}, 0.0, true};
        int j = options_.skip;
        for (int i = options_.layers; i > 0 && j > 0; --i) {
            if (!skipped_[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]) continue;
            result.set.skip_layer(i - 1);
            --j;
        }
        PACE_CHECK(j == 0, "the programme's choices do not lead to as many layers as asked for");
        result.cosine = cosine(state(options_.skip), h(options_.layers));
        return result;
    }

private:
    [[nodiscard]] bool skippable(int layer) const {
        return layer >= options_.keep_first && layer < options_.layers - options_.keep_last;
    }
    /// Layers [0, layer) that may be skipped.
    [[nodiscard]] int skippable_below(int layer) const {
        const int end = std::min(layer, options_.layers - options_.keep_last);
        return std::max(0, end - options_.keep_first);
    }
    [[nodiscard]] int skippable_from(int layer) const {
        return skippable_below(options_.layers) - skippable_below(layer);
    }
    [[nodiscard]] std::span<const float> h(int i) const {
        return stack_.subspan(static_cast<std::size_t>(i) * dim_, dim_);
    }
    [[nodiscard]] std::span<float> state(int j) {
        return row_of(states_, static_cast<std::size_t>(j));
    }
    [[nodiscard]] std::span<float> row_of(std::vector<float>& rows, std::size_t row) const {
        return std::span{rows}.subspan(row * dim_, dim_);
    }

    std::span<const float> stack_;
    LayerSkipDpOptions options_;
    std::size_t dim_;
    std::vector<float> states_;               // g[i][j], [skip + 1, dim]
    std::vector<float> kept_;                 // f(i-1, g[i-1][j]), rows of one call
    std::vector<std::vector<bool>> skipped_;  // [layers + 1][skip + 1]: layer i-1 was skipped
};

}  // namespace

double cosine(std::span<const float> a, std::span<const float> b) {
    double dot = 0.0;
    double aa = 0.0;
    double bb = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        dot += double{a[i]} * double{b[i]};
        aa += double{a[i]} * double{a[i]};
        bb += double{b[i]} * double{b[i]};
    }
    return aa > 0.0 && bb > 0.0 ? dot / std::sqrt(aa * bb) : 0.0;
}

LayerSkipDpResult choose_layers(std::span<const float> stack,
                                const LayerSkipDpOptions& options,
                                const RunLayer& run) {
    PACE_CHECK(options.layers > 0 && options.keep_first >= 0 && options.keep_last >= 0,
               "a dynamic programme without layers");
    PACE_CHECK(
        options.skip >= 0 &&
            options.skip <= std::max(0, options.layers - options.keep_first - options.keep_last),
        "more layers to skip than may be skipped");
    PACE_CHECK(!stack.empty() && stack.size() % static_cast<std::size_t>(options.layers + 1) == 0,
               "the stack is not [layers + 1, dim]");
    LayerSkipDp dp{stack, options};
    for (int layer = 0; layer < options.layers; ++layer) {
        if (!dp.advance(layer, run)) return {};
    }
    return dp.result();
}

}  // namespace paceline
