// Variants: changes to the decoding kernels whose gain only a device can measure.
//
// All are off by default. A bench or a test switches them on (CudaOptions::variants); no variant
// changes a bit of any output. Once a device has measured them, the slower of each pair is deleted.
//
// Three switches change the code of the wave kernel (gemm_wave.cuh). The kernel is compiled for each
// of them alone and for all of them together, not for the other combinations: wave_code().
//
// Pure values. C++17, for host and device.
#pragma once

#include <cstdint>

namespace paceline::cuda {

struct Variants {
    // Kernels let the next kernel start right after their wait_for_previous(). Without it the wave
    // kernel does so after its products; those of rows.hpp and the finish of gemm_blas.hpp never do,
    // and the next one starts when they exit.
    bool early_launch = false;
    // The wave kernel loads the inputs of the rows one step before their tensor-core products.
    bool rows_ahead = false;
    // The wave kernel loads what its finish reads (row index, hidden state, norm weight) before its
    // products.
    bool finish_ahead = false;
    // Weights are loaded with a hint to fetch so many bytes into L2: 0 (no hint), 128 or 256.
    int l2_hint = 0;
    // Attention is planned for the rows of the wave, not for the rows that its grids are rounded up
    // to (grid_rows()).
    bool attention_rows = false;
};

/// The hint of "all": 128 bytes are one line of L2. A load of bf16 weights takes one half of it and
/// the next step the other; 256 bytes are what the four steps in flight have requested already.
inline constexpr int kLikelierL2Hint = 128;

/// All together.
inline constexpr Variants kAllVariants{true, true, true, kLikelierL2Hint, true};

[[nodiscard]] constexpr bool operator==(const Variants& a, const Variants& b) {
    return a.early_launch == b.early_launch && a.rows_ahead == b.rows_ahead &&
           a.finish_ahead == b.finish_ahead && a.l2_hint == b.l2_hint &&
           a.attention_rows == b.attention_rows;
}

/// The code of the wave kernel: a template argument of it.
enum class WaveCode : std::uint8_t {
    Base,
    RowsAhead,
    FinishAhead,
    L2Hint128,
    L2Hint256,
    All,          // rows_ahead, finish_ahead and kLikelierL2Hint
    NotCompiled,  // any other combination
};

[[nodiscard]] constexpr WaveCode wave_code(const Variants& variants) {
    const bool rows = variants.rows_ahead;
    const bool finish = variants.finish_ahead;
    const int hint = variants.l2_hint;
    if (rows && finish && hint == kLikelierL2Hint) return WaveCode::All;
    if (rows && !finish && hint == 0) return WaveCode::RowsAhead;
    if (!rows && finish && hint == 0) return WaveCode::FinishAhead;
    if (rows || finish) return WaveCode::NotCompiled;
    return hint == 0     ? WaveCode::Base
           : hint == 128 ? WaveCode::L2Hint128
           : hint == 256 ? WaveCode::L2Hint256
                         : WaveCode::NotCompiled;
}

[[nodiscard]] constexpr bool loads_rows_ahead(WaveCode code) {
    return code == WaveCode::RowsAhead || code == WaveCode::All;
}
[[nodiscard]] constexpr bool loads_finish_ahead(WaveCode code) {
    return code == WaveCode::FinishAhead || code == WaveCode::All;
}
[[nodiscard]] constexpr int l2_hint_of(WaveCode code) {
    return code == WaveCode::L2Hint128   ? 128
           : code == WaveCode::L2Hint256 ? 256
           : code == WaveCode::All       ? kLikelierL2Hint
                                         : 0;
}

}  // namespace paceline::cuda
