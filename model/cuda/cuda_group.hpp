// CudaGroup: what makes several devices work on one batch: the order between their streams, and the
// places in each other's memory.
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
// Devices that do not reach each other have an exchange (cuda_exchange.hpp): what they would write
// into each other's memory they write into it, and take() after the barrier copies it from there.
//
// A recording is made of the first device's stream, from fork() to join(): one graph with kernels
// of all devices, whose edges the barriers are; so it is launched at once, in one stream.
//
// Borrows the ranks. Used by one thread.
#pragma once

#include <memory>
#include <span>

#include "model/cuda/cuda_exchange.hpp"
#include "model/cuda/cuda_rank.hpp"

namespace paceline {

class CudaGroup {
public:
    using Ranks = std::span<const std::unique_ptr<CudaRank>>;

    /// One device or several. Those that do not reach each other use an exchange before the first
    /// call.
    explicit CudaGroup(Ranks ranks) : ranks_{ranks} {}
    /// Borrowed.
    void use(const CudaExchange& exchange) { exchange_ = &exchange; }
    [[nodiscard]] Ranks ranks() const { return ranks_; }
    /// Where calls begin and end.
    [[nodiscard]] CudaRank& first() const { return *ranks_.front(); }
    [[nodiscard]] Ranks others() const { return ranks_.subspan(1); }

    /// Calls work(rank) for each, its device being the calling thread's.
    template <class Work>
    void on_each(const Work& work) const;
    // Nothing on one device.
    void fork() const;
    void join() const;
    void barrier() const;
    /// Whether all devices are. Asks each of them: one that failed throws here, while the first
    /// would wait for it.
    [[nodiscard]] bool idle() const;
    /// Waits until all devices are idle.
    void finish() const;
    /// The same after a join(). A failure is reported by calls of the device that failed alone, so
    /// each is asked: results of a failed one are never used.
    void finish_joined() const;
    /// Lets `next`, which is of whole rows in a device's own `buffer`, begin at a column, and go to
    /// the same place in the memory of the other devices.
    void share(const CudaRank& rank,
               void* CudaWorkspace::*buffer,
               int first_column,
               cuda::NextInput& next) const;
    /// Calls put(place) with each place where other devices than `rank` find a buffer.
    template <class Element, class Put>
    void on_others(const CudaRank& rank, Element* CudaWorkspace::*buffer, const Put& put) const;
    /// Where the first device finds what others make of a buffer.
    template <class Element>
    [[nodiscard]] Element* gathered(Element* CudaWorkspace::*buffer) const {
        return exchange_ != nullptr ? exchange_->at().*buffer : first().at.*buffer;
    }
    /// After a barrier: with an exchange, what the others have made of these rows of a buffer.
    template <class Element>
    void take(CudaRank& rank,
              Element* CudaWorkspace::*buffer,
              const CudaExchange::Columns& columns,
              const CudaTakenRows& rows) const {
        if (exchange_ != nullptr) exchange_->take(rank, buffer, columns, rows);
    }
    /// The same of an input that share() has put, with its squares if it has some.
    void take_input(CudaRank& rank,
                    void* CudaWorkspace::*buffer,
                    const CudaExchange::Columns& columns,
                    const CudaTakenRows& rows,
                    bool squares) const;

private:
    Ranks ranks_;
    const CudaExchange* exchange_ = nullptr;
};

template <class Element, class Put>
void CudaGroup::on_others(const CudaRank& rank,
                          Element* CudaWorkspace::*buffer,
                          const Put& put) const {
    if (exchange_ != nullptr) return put(exchange_->at().*buffer);
    for (const std::unique_ptr<CudaRank>& other : ranks_) {
        if (other.get() != &rank) put(other->at.*buffer);
    }
}

template <class Work>
void CudaGroup::on_each(const Work& work) const {
    for (const std::unique_ptr<CudaRank>& rank : ranks_) {
        if (ranks_.size() > 1) cuda::set_device(rank->device);
        work(*rank);
    }
}

}  // namespace paceline
