// How many rows a kernel's batch has. Included by .cu files alone.
#pragma once

#include <cstdint>

#include "model/kernels/cuda/device.cuh"

namespace paceline::cuda {

/// Another stream may be setting it to 0, which ends a batch: all lanes of a warp take what the
/// first one saw.
PACE_DEVICE int rows_of(const std::int32_t* rows) {
    return shuffle(*rows, 0);
}

}  // namespace paceline::cuda
