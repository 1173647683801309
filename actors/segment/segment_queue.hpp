// SegmentQueue: parts of batches that wait for a segment's layers, in the order in which they came.
//
//     arrived batch  [ A: 1 row | B: 8 rows | C: 3 rows ]      three parts, one tensor slot
//     next run       [ A: 1 + 2 rows | C: 3 rows ]             B still waits for a verdict
//
// The parts of a request keep their order; those of different requests may overtake each other,
// unless they write to the same KV slot: the slot has been assigned to another request meanwhile,
// and the writes must keep their order.
// A held part (BatchPart::hold) waits until a part of its request that is not held follows it, or
// its time is over. Several verify parts of a request become one in a run.
// Pure apart from the tensor slots it gives back. Threads: the actor's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/decoding/drawn_siblings.hpp"
#include "actors/protocol/tensor_rows.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

/// A published tensor slot that the parts of a batch share: released with the last of them.
class TensorShare {
public:
    TensorShare(TensorConsumer* pool, PoolRef ref) : pool_{pool}, ref_{ref} {}
    ~TensorShare() {
        if (pool_ != nullptr) pool_->release(ref_);
    }
    TensorShare(const TensorShare&) = delete;
    TensorShare& operator=(const TensorShare&) = delete;

    /// Precondition: not forgotten. Errors: Protocol if the pool has no such tensor.
    [[nodiscard]] Result<ConstHiddenRows> view(std::size_t floats) const {
        PACE_CHECK(pool_ != nullptr, "a batch of a lost segment is run");
        const Result<TensorMemory> viewed = pool_->view_memory(ref_, floats * sizeof(float));
        if (!viewed) return viewed.error();
        return ConstHiddenRows{hidden_rows(viewed.value())};
    }
    /// The pool is gone: nothing is given back.
    void forget() { pool_ = nullptr; }

private:
    TensorConsumer* pool_;
    PoolRef ref_;
};

struct WaitingPart {
    msg::BatchPart part{};
    std::vector<msg::BatchRow> rows = {};
    std::vector<DrawnSiblingsPtr> drawn_below = {};  // after each row; empty: nothing was drawn
    std::shared_ptr<TensorShare> tensor = nullptr;   // nullptr: at the first segment, or copied
    std::uint32_t tensor_rows = 0;                   // of the whole tensor
    std::shared_ptr<RowMemory> copied =
        nullptr;                              // a held part's own rows, so that it keeps no slot
    bool joined = false;                      // its rows are in the request's tree
    std::optional<msg::BatchCost> cost = {};  // of its batch so far; nothing: it begins here
    Micros run_by{0};                         // of a held part: when it runs anyway
};

class SegmentQueue {
public:
    enum class Readiness : std::uint8_t {
        Ready,
        Waits,  // for its Begin, or for a verdict that it builds on
        Joins,  // its rows have to join its request's tree first
        Stale,  // its request no longer needs it: it leaves the queue
    };
    struct Rules {
        /// Asked in order, of a request only until one of its parts has to wait, or is a prefill.
        std::function<Readiness(const WaitingPart& part)> readiness_of;
        /// After Joins; then `readiness_of` is asked again. An error ends take().
        std::function<Status(const WaitingPart& part)> join = {};
    };

    /// `batch_rows`: of one run, kVerifyRowsMax or more.
    explicit SegmentQueue(std::uint32_t batch_rows = kBatchRowsMax) : batch_rows_{batch_rows} {}

    void push(WaitingPart part) { parts_.push_back(std::move(part)); }

    /// The parts of the next run, in order: of kBatchPartsMax requests, kVerifyRowsMax verify rows
    /// at most, and of one request not more than a verdict can carry. Empty if nothing is ready.
    [[nodiscard]] Result<std::vector<WaitingPart>> take(const Rules& rules, Micros now);
    /// When the time of a held part is over, if that is still to come.
    [[nodiscard]] std::optional<Micros> due(Micros now) const;

    /// Drops those of which `which` answers true.
    void drop_if(const std::function<bool(const WaitingPart& part)>& which);
    /// Gives the tensor of a part that will not run back to its pool, with the batch's last part.
    static void drop(WaitingPart& part);
    /// The sender is lost, and with it the tensors that its batches name.
    void forget_all();

    [[nodiscard]] std::size_t size() const { return parts_.size(); }

private:
    struct Selection;
    [[nodiscard]] Result<std::vector<bool>> readiness(const Rules& rules);
    void keep_held(std::vector<bool>& ready, Micros now) const;

    std::uint32_t batch_rows_;
    std::deque<WaitingPart> parts_;
};

}  // namespace paceline
