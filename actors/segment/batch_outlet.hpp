// BatchOutlet: passes runs on to the next segment: its end of the tensor pool, and the slot that
// the next run writes to.
// Emits: Batch.
//
// Without a next segment (the last one) it has always room, and nothing is passed on.
// Owns the acquired slot. Threads: the actor's loop.
#pragma once

#include <optional>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class BatchOutlet {
public:
    using Emits = Kinds<msg::Batch>;

    /// Borrows the host. `dim`: of a hidden state.
    BatchOutlet(SegmentHost& host, std::optional<StageId> next, std::size_t dim)
        : host_{host}, next_{next}, dim_{dim} {}
    BatchOutlet(const BatchOutlet&) = delete;
    BatchOutlet& operator=(const BatchOutlet&) = delete;

    /// Fetches the end of the tensor pool. A next segment that is lost has none: nothing is passed
    /// on then.
    void connect();
    /// The next segment is lost, and with it the slot.
    void lose();

    /// Whether a run that starts now could be passed on at its end: messages do not wait for a
    /// channel, and there is a slot, which is acquired.
    [[nodiscard]] bool acquire();
    /// The same without acquiring a slot.
    [[nodiscard]] bool ready() const { return host_.outbox->empty() && (!next_ || slot_); }
    /// Where the layers of the next run write to. Precondition: acquire() was true, there is a next
    /// segment.
    [[nodiscard]] HiddenRows memory() const;
    /// Drops the parts that the segments behind this one do not need (BatchPart::last); perhaps
    /// all.
    void end_here(SegmentRun& run) const;
    /// Sends the run's rows, with the slot that it has written to.
    void forward(const SegmentRun& run);

private:
    SegmentHost& host_;
    std::optional<StageId> next_;
    std::size_t dim_;
    TensorProducer* out_ = nullptr;  // to the next segment, if it is there and not lost
    std::optional<PoolRef> slot_;    // acquired, for the next run to be passed on
};

}  // namespace paceline
