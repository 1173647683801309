// The passes over a whole row of logits, compiled for each instruction set.
//
// The same source (row_kernels.inc) is compiled for AVX-512, AVX2 and the baseline; the one to
// use is chosen at run time. All give equal bits: they differ only in how many lanes they do at
// once. Pure functions over raw pointers: this header is compiled once per instruction set and
// must not instantiate anything that the linker would share. Any thread.
#pragma once

#include <cstdint>

namespace paceline {

/// What a draw needs. z(l) = (l - max_logit) * inverse_temperature.
struct DrawArgs {
    const float* logits;  // [vocab]
    int vocab;
    const float* group_max;     // [groups], from fold
    float max_logit;            // from fold; finite
    float inverse_temperature;  // finite, > 0
    float z_min;                // kept: z >= z_min, and
    float logit_min;            // logit > logit_min, or logit == logit_min and id <= last_id
    std::int32_t last_id;
    std::uint64_t seed;
    std::uint32_t position;
    float* race;   // [groups] scratch
    float* bound;  // [groups] scratch
};

struct Drawn {
    std::int32_t token;  // -1: nothing is kept
    float score;         // z + gumbel
};

struct Mass {
    std::uint64_t weight;
    std::int32_t count;
};

struct RowKernels {
    const char* name;
    /// Writes the largest logit of each group (noise_layout.hpp; -inf if it has none) and returns
    /// that of the row. NaN counts as -inf. `group_max` is [16 * ceil(vocab / 256)].
    float (*fold)(const float* logits, int vocab, float* group_max);
    /// Writes weight_of(z) for each token and returns their sum.
    std::uint64_t (*weigh)(const float* logits,
                           int vocab,
                           float max_logit,
                           float inverse_temperature,
                           std::uint32_t* weights);
    /// Weight and number of the tokens with logit >= low.
    Mass (*mass_from)(const float* logits, const std::uint32_t* weights, int vocab, float low);
    /// Writes the tokens with low <= logit < high in the order of their ids; returns how many.
    int (*collect)(const float* logits, int vocab, float low, float high, std::int32_t* tokens);
    /// argmax of z + gumbel over the kept tokens, the lowest id among equals.
    Drawn (*draw)(const DrawArgs& args);
    /// Writes the kept tokens that score at least `low` (finite) and their scores, in no useful
    /// order; returns how many. After draw() with the same arguments: it reads race and bound.
    int (*rivals)(const DrawArgs& args, float low, std::int32_t* tokens, float* scores);
    /// Writes fixed_exp(z) of the kept tokens and 0 for the others; returns their sum. Without
    /// `out` only the sum, of all tokens. Reads neither group_max nor what concerns the noise.
    double (*soften)(const DrawArgs& args, float* out);
};

enum class RowIsa : std::uint8_t { Baseline, Avx2, Avx512 };

/// The best kernels of this machine.
[[nodiscard]] const RowKernels& row_kernels();
/// Those of one instruction set, or nullptr where the machine or the build lacks it.
[[nodiscard]] const RowKernels* row_kernels_for(RowIsa isa);

}  // namespace paceline
