// CudaExchange: how devices that do not reach each other's memory share a segment: through memory
// of the host.
//
// What all devices need of a row (cuda_group.hpp) each puts into its own memory and into the
// exchange; behind the barrier that follows it takes the others' parts from there. The exchange
// has the same buffers as a device's workspace, of the same shapes, as far as others need them, so
// what is said of their order holds for it too: taken between the barrier after it was written and
// the next one.
//
// Nothing is computed on the way, so the bits are those of devices that reach each other. A row of
// n bytes crosses each device's link (1 + (D - 1) / D) n / D times, D devices, plus a latency of
// the link and a launch at each of four barriers a layer.
//
// Owns pinned memory. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/cuda/cuda_options.hpp"
#include "model/cuda/cuda_rank.hpp"
#include "model/kernels/cuda/exchange.hpp"

namespace paceline {

/// The rows of a buffer that are taken: the first `*count` of it, or those that `index` names, at
/// most `most`.
struct CudaTakenRows {
    const std::int32_t* count = nullptr;  // device memory
    int most = 0;
    const std::int32_t* index = nullptr;
    const std::int32_t* tokens = nullptr;  // rows with a negative one are not taken
};

class CudaExchange {
public:
    /// Of a row.
    struct Columns {
        int width = 0;  // of all devices, with padding
        CudaShare own;  // those that the device itself makes
        std::size_t element_bytes = 0;
    };
    /// Of pinned memory.
    [[nodiscard]] static std::uint64_t bytes_of(const ModelConfig& config,
                                                const CudaOptions& options);
    /// False if there is no pinned memory.
    static bool make(const ModelConfig& config, const CudaOptions& options, CudaExchange& to);

    /// The buffers that others need; the rest is nullptr.
    [[nodiscard]] const CudaWorkspace& at() const { return at_; }

    /// Puts into the device's stream: its rows of a buffer get what the others have made.
    template <class Element>
    void take(CudaRank& rank,
              Element* CudaWorkspace::*buffer,
              const Columns& columns,
              const CudaTakenRows& rows) const {
        const auto bytes_of = [&](int elements) {
            return static_cast<std::size_t>(elements) * columns.element_bytes;
        };
        cuda::TakeArgs args{rank.at.*buffer, at_.*buffer, rows.count, rows.index, rows.tokens};
        args.bytes = bytes_of(columns.width);
        args.own_begin = bytes_of(columns.own.first);
        args.own_end = args.own_begin + bytes_of(columns.own.count);
        // A device that multiplies nothing does not know the shape of its product.
        if (args.bytes > 0) cuda::launch_take(rank.stream, args, rows.most);
    }

private:
    cuda::PinnedMemory memory_;
    CudaWorkspace at_;
};

}  // namespace paceline
