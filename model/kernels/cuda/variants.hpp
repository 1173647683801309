// Variants: changes to the decoding kernels whose gain only a device can measure.
//
// No variant changes a bit of any output. The backend uses all of them (CudaOptions::variants): on an
// H100 all together were never slower than the base (docs/gpu.md). Kernels called alone use none.
//
// finish_ahead changes the code of the wave kernel (gemm_wave.cuh): wave_code().
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
    // The wave kernel loads what its finish reads (row index, hidden state, norm weight) before its
    // products.
    bool finish_ahead = false;
};

/// All together.
inline constexpr Variants kAllVariants{true, true};

[[nodiscard]] constexpr bool operator==(const Variants& a, const Variants& b) {
    return a.early_launch == b.early_launch && a.finish_ahead == b.finish_ahead;
}

/// The code of the wave kernel: a template argument of it.
enum class WaveCode : std::uint8_t { Base, FinishAhead };

[[nodiscard]] constexpr WaveCode wave_code(const Variants& variants) {
    return variants.finish_ahead ? WaveCode::FinishAhead : WaveCode::Base;
}

[[nodiscard]] constexpr bool loads_finish_ahead(WaveCode code) {
    return code == WaveCode::FinishAhead;
}

}  // namespace paceline::cuda
