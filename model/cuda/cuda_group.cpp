#include "model/cuda/cuda_group.hpp"

namespace paceline {

void CudaGroup::fork() const {
    if (ranks_.size() == 1) return;
    cuda::set_device(first().device);
    first().done.record(first().stream);
    for (const std::unique_ptr<CudaRank>& rank : others()) rank->stream.wait(first().done);
}

void CudaGroup::join() const {
    if (ranks_.size() == 1) return;
    for (const std::unique_ptr<CudaRank>& rank : others()) {
        cuda::set_device(rank->device);
        rank->done.record(rank->stream);
        first().stream.wait(rank->done);
    }
    cuda::set_device(first().device);
}

void CudaGroup::barrier() const {
    if (ranks_.size() == 1) return;
    on_each([](CudaRank& rank) { rank.done.record(rank.stream); });
    for (const std::unique_ptr<CudaRank>& rank : ranks_) {
        for (const std::unique_ptr<CudaRank>& other : ranks_) {
            if (other != rank) rank->stream.wait(other->done);
        }
    }
}

bool CudaGroup::idle() const {
    bool all = true;
    for (const std::unique_ptr<CudaRank>& rank : ranks_) all = rank->stream.idle() && all;
    return all;
}

void CudaGroup::finish() const {
    join();
    finish_joined();
}

void CudaGroup::finish_joined() const {
    first().stream.finish();
    (void)idle();
}

void CudaGroup::share(const CudaRank& rank,
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
    on_others(rank, buffer, [&](void* x) { next.other_x[next.others++] = moved(x); });
    if (!squares) return;
    int other = 0;
    on_others(rank, &CudaWorkspace::squares,
              [&](float* x) { next.other_squares[other++] = x + tile; });
}

void CudaGroup::take_input(CudaRank& rank,
                           void* CudaWorkspace::*buffer,
                           const CudaExchange::Columns& columns,
                           const CudaTakenRows& rows,
                           bool squares) const {
    take(rank, buffer, columns, rows);
    if (!squares) return;
    const auto tiles = [](int count) { return cuda::tiles_of(count); };
    take(
        rank, &CudaWorkspace::squares,
        {tiles(columns.width), {tiles(columns.own.first), tiles(columns.own.count)}, sizeof(float)},
        rows);
}

}  // namespace paceline
