// CudaRows: hidden states on their way into the workspace, out of it, and from one place to
// another.
//
//     host ──> pinned ──> device        a copy of the host's, then one of the stream's
//     device ──> device                 the stream's alone; the other end may be foreign memory
//
// Pinned memory holds a batch of them; what came out is copied on once the stream was waited for.
//
// Owns the pinned memory. Borrows the group. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/cuda/cuda_group.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

/// Number of batches whose hidden states callers can keep on the device: a segment's run, the rows
/// that its exit evaluates, and the output of its adapter. More memory is allocated on demand.
inline constexpr int kKeptBatches = 3;

class CudaRows {
public:
    /// Hidden states of `dim` numbers, in batches of up to `rows_max`.
    CudaRows(const CudaGroup& group, int dim, int rows_max)
        : group_{group},
          dim_{static_cast<std::size_t>(dim)},
          rows_max_{static_cast<std::size_t>(rows_max)} {}
    /// False if there is not so much pinned memory: a batch, at least.
    [[nodiscard]] bool make(std::uint64_t pinned_bytes) {
        return cuda::PinnedMemory::allocate(pinned_bytes, pinned_);
    }
    /// For others that bring something from the device or to it, and wait for it.
    [[nodiscard]] cuda::PinnedMemory& pinned() { return pinned_; }

    /// A batch's, to all devices.
    void give(ConstHiddenRows hidden);
    /// Puts the batch's hidden states into the stream. Those that go to the host come by way of
    /// take_out(), once the stream was waited for.
    void send_out(HiddenRows out);
    void take_out(HiddenRows out) const;

    /// Backend::gather() and copy(), and memory for `rows` rows.
    void gather(std::span<const RowSource> rows, HiddenRows to);
    void copy(ConstHiddenRows from, HiddenRows to);
    [[nodiscard]] RowMemory make_rows(std::size_t rows);

private:
    void gather_batch(std::span<const RowSource> rows, HiddenRows to);
    void put_in_stream(std::span<const RowSource> rows, std::size_t first, HiddenRows to);

    const CudaGroup& group_;
    std::size_t dim_;
    std::size_t rows_max_;
    cuda::PinnedMemory pinned_;
    std::size_t kept_rows_ = 0;  // of the workspace's, that are given
};

}  // namespace paceline
