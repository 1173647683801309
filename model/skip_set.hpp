// SkipSet: the attention and MLP sub-layers of a model that a draft skips.
//
//     text     "attn:1,3,5-9 mlp:2,4"          as in a configuration, and on disk
//     strip    attention  .#.#.#####...        one mark per layer: '#' is skipped
//              MLP        ..#.#........
//
// A skipped sub-layer leaves the residual as it is (its norm is skipped too) and writes no keys and
// values. The sub-layers before the first skipped one compute what the whole model computes: their
// keys, values and hidden states are exact (Draft & Verify; SWIFT, section 3).
// A plain value; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/rows.hpp"

namespace paceline {

/// How many of `skippable` sub-layers (or layers) a skip ratio selects. Rounded down, as in SWIFT's
/// program, but at least one unless the ratio is 0, since small models have few.
[[nodiscard]] int skipped_of(double ratio, int skippable);

class SkipSet {
public:
    SkipSet() = default;
    /// Nothing is skipped.
    explicit SkipSet(int layers);

    /// `count` sub-layers, evenly spread, whole layers first: those of odd number (SWIFT's "unified
    /// skipping"), and of the others if these are too few. The first `keep_first` and the last
    /// `keep_last` layers are kept; fewer than `count` only if no more may be skipped.
    [[nodiscard]] static SkipSet uniform(int layers, int count, int keep_first, int keep_last);
    /// Layers from 0. Errors: BadArgument naming the part that is not understood, or a layer that
    /// does not exist.
    [[nodiscard]] static Result<SkipSet> parse(std::string_view text, int layers);

    [[nodiscard]] int layers() const { return layers_; }
    /// Sub-layer 2l is the attention of layer l, 2l + 1 its MLP. Preconditions: it exists.
    [[nodiscard]] bool skips(int sublayer) const;
    void set(int sublayer, bool skipped);
    void skip_layer(int layer);
    /// Skipped sub-layers.
    [[nodiscard]] int count() const;
    /// The first skipped sub-layer; 2 * layers() if there is none.
    [[nodiscard]] int first_skipped() const;

    [[nodiscard]] SublayerMask mask() const;
    [[nodiscard]] std::string text() const;   // empty: nothing is skipped
    [[nodiscard]] std::string strip() const;  // two lines

    friend bool operator==(const SkipSet&, const SkipSet&) = default;

private:
    int layers_ = 0;
    std::vector<bool> skipped_;  // [2 * layers]
};

}  // namespace paceline
