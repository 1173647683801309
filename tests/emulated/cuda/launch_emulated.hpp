// launch() of launch.cuh on the emulated device. Included by it alone.
//
// A shape that no device takes is refused here and now; what a kernel does wrong is thrown when it
// runs, which is here too unless the stream is being recorded.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "tests/emulated/cuda/block.hpp"

namespace paceline::cuda {
namespace emulated {

/// A kernel has no name that a program could find; that of its argument's type tells which it is.
[[nodiscard]] std::string kernel_name(const std::type_info& argument);

/// Throws DeviceError if the stream belongs to another device than the calling thread's, or if
/// `argument` points into memory that its device does not reach.
void check_launch(const Stream& stream, const Grid& grid, const void* argument, std::size_t bytes);

/// Runs `body` on `grid`, or appends that to what `stream` records.
void submit(Stream& stream, Grid grid, std::function<void()> body);

}  // namespace emulated

template <class Args>
void launch(Stream& stream,
            const LaunchShape& shape,
            void (*kernel)(Args),
            const std::type_identity_t<Args>& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    const emulated::Grid grid{.kernel = emulated::kernel_name(typeid(Args)),
                              .blocks_x = shape.blocks_x,
                              .blocks_y = shape.blocks_y,
                              .threads = shape.threads,
                              .shared_bytes = shape.shared_bytes,
                              .overlaps_previous = shape.overlaps_previous};
    emulated::check_launch(stream, grid, &args, sizeof args);
    emulated::submit(stream, grid, [kernel, args] { kernel(args); });
}

}  // namespace paceline::cuda
