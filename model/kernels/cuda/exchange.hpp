// Rows that several devices make together where they do not reach each other's memory: each puts
// its part into host memory that all of them read and write, and takes the parts of the others out
// of it.
//
// A take is put into a stream behind a wait for all who write (CudaGroup::barrier()). The caller
// owns all memory. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

/// Of each row [bytes] in device memory all but the bytes [own_begin, own_end), which are there.
/// All but the pointers are multiples of 4 bytes.
struct TakeArgs {
    void* to = nullptr;                       // device memory, [rows][bytes]
    const void* from = nullptr;               // host memory, [rows][bytes]
    const std::int32_t* rows = nullptr;       // how many, in device memory
    const std::int32_t* row_index = nullptr;  // which of `to` and `from`; nullptr: the first ones
    const std::int32_t* tokens = nullptr;     // rows with a negative one stay; nullptr: none does
    std::size_t bytes = 0;
    std::size_t own_begin = 0;
    std::size_t own_end = 0;
};
void launch_take(Stream& stream, const TakeArgs& args, int rows_max);

}  // namespace paceline::cuda
