// What makes several devices work on one batch: the order between their streams, and the places in
// each other's memory.
//
//     fork      what the first device has done before, the others find
//     barrier   what each device has done before, all find
//     join      what the others have done before, the first finds
//
// Each device's kernels write what all need into the memory of all, between two barriers; what they
// read there was written before the first of the two. Four buffers go round (mixed, input with its
// squares, gated): each is read between the barrier after it was written and the next one, and
// written again no sooner than after that, so none is needed twice.
//
// A recording is made of the first device's stream, from fork() to join(): one graph with kernels
// of all devices, whose edges the barriers are; so it is launched at once, in one stream.
#include "model/cuda/cuda_forward.hpp"

namespace paceline {

void CudaForward::fork() {
    if (ranks_.size() == 1) return;
    cuda::set_device(first_.device);
    first_.done.record(stream_);
    for (const std::unique_ptr<CudaRank>& rank : ranks_.subspan(1)) rank->stream.wait(first_.done);
}

void CudaForward::join() {
    if (ranks_.size() == 1) return;
    for (const std::unique_ptr<CudaRank>& rank : ranks_.subspan(1)) {
        cuda::set_device(rank->device);
        rank->done.record(rank->stream);
        stream_.wait(rank->done);
    }
    cuda::set_device(first_.device);
}

void CudaForward::barrier() {
    if (ranks_.size() == 1) return;
    on_each([](CudaRank& rank) { rank.done.record(rank.stream); });
    for (const std::unique_ptr<CudaRank>& rank : ranks_) {
        for (const std::unique_ptr<CudaRank>& other : ranks_) {
            if (other != rank) rank->stream.wait(other->done);
        }
    }
}

/// Waits until all devices are idle.
void CudaForward::finish_all() {
    join();
    stream_.finish();
}

/// Lets `next`, which is of whole rows in a device's own `buffer`, begin at a column, and go to the
/// same place in the memory of the other devices.
void CudaForward::share(const CudaRank& rank,
                        void* CudaWorkspace::*buffer,
                        int first_column,
                        cuda::NextInput& next) const {
    const auto column = static_cast<std::size_t>(first_column);
    const std::size_t bytes = column * (next.wide ? sizeof(float) : sizeof(std::uint16_t));
    const std::size_t tile = column / cuda::kTileOutputs;
    const auto moved = [bytes](void* x) { return static_cast<std::byte*>(x) + bytes; };
    const bool squares = next.squares != nullptr;
    next.x = moved(next.x);
    if (squares) next.squares += tile;
    if (next.weights != nullptr) next.weights += column;
    for (const std::unique_ptr<CudaRank>& other : ranks_) {
        if (other.get() == &rank) continue;
        next.other_x[next.others] = moved(other->at.*buffer);
        next.other_squares[next.others] = squares ? other->at.squares + tile : nullptr;
        ++next.others;
    }
}

}  // namespace paceline
