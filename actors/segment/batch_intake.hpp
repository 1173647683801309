// BatchIntake: takes the batches of the segment before, and keeps their parts until they can run.
// Handles: Batch.   Emits: none.
//
//     handle()   a batch is split into its parts, which wait in the queue (segment_queue.hpp); a
//                held part gets a copy of its hidden states
//     take()     the parts of the next run: those whose request is as far as they are
//
// A first segment has it too, without a segment before: then every Batch is an error of its sender.
// Owns the queue and the memory of held parts. Threads: the actor's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_plan.hpp"
#include "actors/segment/segment_queue.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"

namespace paceline {

class BatchIntake {
public:
    using Handles = Kinds<msg::Batch>;
    using Emits = Kinds<>;

    /// Borrows host and backend; attaches itself to the host's inbox.
    BatchIntake(const SegmentPlan& plan, SegmentHost& host, Backend& backend);
    ~BatchIntake();
    BatchIntake(const BatchIntake&) = delete;
    BatchIntake& operator=(const BatchIntake&) = delete;

    Status handle(StageId from, const msg::Batch& batch);

    /// Fetches the end of the tensor pool. A segment before that is lost has none.
    void connect();
    /// The segment before is lost, and with it the tensors that the queued parts name.
    void lose();
    /// All attempts are cancelled. Parts that arrived before their Begin belong to a future
    /// attempt: they are kept.
    void drop_cancelled();

    /// The parts of the next run; empty if none is ready.
    /// Errors: Protocol if rows do not join the tree of their request.
    [[nodiscard]] Result<std::vector<WaitingPart>> take();
    /// Reports an error of take(), or of a run of its parts, as the fault of the segment before,
    /// whose parts are dropped. Errors: those that are not its fault.
    [[nodiscard]] Status blame_sender_for(const Error& error);

    /// When the time of a held part is over, if that is still to come.
    [[nodiscard]] std::optional<Micros> due() const { return queue_.due(host_.context->now()); }
    [[nodiscard]] std::size_t size() const { return queue_.size(); }

private:
    [[nodiscard]] Result<WaitingPart> split(const msg::Batch& batch,
                                            std::uint32_t index,
                                            std::uint32_t first_row,
                                            const std::shared_ptr<TensorShare>& tensor);
    [[nodiscard]] Result<std::shared_ptr<RowMemory>> copy_of(const WaitingPart& part);
    [[nodiscard]] SegmentQueue::Readiness readiness_of(const WaitingPart& part) const;

    SegmentHost& host_;
    Backend& backend_;
    std::optional<StageId> previous_;
    Micros hold_limit_;
    TensorConsumer* in_ = nullptr;  // from the segment before, if it is there and not lost
    SegmentQueue queue_;
    std::vector<std::shared_ptr<RowMemory>> copies_;  // for held parts; used again
};

}  // namespace paceline
