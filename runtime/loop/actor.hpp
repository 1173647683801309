// Actor: a state machine whose public part is its inbox, and the context that a stage gives it.
//
// Every method is called by the actor's loop, one at a time, and runs to completion: it changes
// state, sends, submits and returns; it never waits. Effects go only through the context.
// Messages of one sender arrive in the order in which they were sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "ipc/wire/control.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

enum class PeerChange : std::uint8_t {
    Lost,    // it is dead or faulty; channels with it are closed
    Joined,  // its next incarnation is at work, with new channels
};

/// The context of an actor of a pipeline: Context, and what concerns stages. The same in every
/// environment.
struct StageContext : Context {
    /// The address of this actor, and the incarnation of its stage (for Route::epoch).
    [[nodiscard]] virtual StageId self() const = 0;
    [[nodiscard]] virtual Epoch epoch() const = 0;
    /// The incarnation of `peer` at the other end of this stage's channels: that of the Wire or
    /// Rewire that made them, not of a message. 0 while there are none.
    [[nodiscard]] virtual Epoch epoch_of(StageId peer) const = 0;

    /// Sends one control message: a stage to kConductor, the conductor to any stage. If that fails
    /// the loop ends with the error.
    virtual void post(StageId to, const control::Message& message) = 0;

    /// This end of the tensor pool beside the edge, or nullptr if no tensors travel there or the
    /// peer is lost. Valid until Actor::on_peer says that this peer is lost or has joined; the
    /// memory itself stays for jobs that were submitted before. Where acquire() finds nothing,
    /// Actor::on_room follows.
    [[nodiscard]] virtual TensorProducer* tensors_to(StageId to) = 0;
    [[nodiscard]] virtual TensorConsumer* tensors_from(StageId from) = 0;

    /// The word in shared memory that shows which attempts of `request` are cancelled (mark with
    /// CancelBoard::mark_of()), for a job to read between layers; nullptr in environments where it
    /// cannot change during a job.
    [[nodiscard]] virtual const std::atomic<std::uint64_t>* cancel_word(RequestId request) = 0;
    /// The conductor: attempts of `request` below `valid` are cancelled.
    virtual void cancel_before(RequestId request, Attempt valid) = 0;

    /// The newest committed token of `request` in shared memory, for a job to find out which of its
    /// rows are stale; nullptr where it cannot change during a job.
    [[nodiscard]] virtual const WatermarkCell* watermark_cell(RequestId request) = 0;
    /// The verifier: `token` of `request` was committed at `position`.
    virtual void publish_watermark(RequestId request,
                                   Attempt attempt,
                                   Position position,
                                   TokenId token) = 0;

    /// The conductor: a request caused the newest loss of `stage` that was not excused before, so
    /// it does not count in the restart intensity. No effect where stages are not supervised.
    virtual void excuse_loss([[maybe_unused]] StageId stage) {}

    /// `peer` has sent an invalid message: no further message of it is handled, Actor::on_peer
    /// reports after this handler that it is lost, and it is replaced. For a peer in this process:
    /// as fail().
    virtual void report_fault(StageId peer, Error error) = 0;
    /// Ends the stage: its loop returns this error, which is reported to the conductor.
    virtual void fail(Error error) = 0;
    /// Ends the loop in good order after the current handler.
    virtual void stop() = 0;
};

class Actor {
public:
    Actor() = default;
    Actor(const Actor&) = delete;
    Actor& operator=(const Actor&) = delete;
    virtual ~Actor() = default;

    /// Once, before any message. The context outlives the actor's last call.
    virtual void on_start(StageContext& context) = 0;

    /// One data message (ipc/wire/messages.hpp). The loop has checked that the kind exists and that
    /// the length is the kind's; the actor must check the fields.
    /// The bytes live until the handler returns and are aligned for every message.
    virtual void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) = 0;

    /// One control message of the conductor to a stage: Begin. Data messages that other stages send
    /// because of it come after it, unless this stage has too many unread messages
    /// (control_outbox.hpp) or is a draft.
    virtual void on_control([[maybe_unused]] StageId from,
                            [[maybe_unused]] const control::Message& message) {}

    /// There may be room again towards `to`: after send() returned Full, or a tensor pool had no
    /// free slot.
    virtual void on_room([[maybe_unused]] StageId to) {}

    /// A stage of the pipeline was lost, or has joined as a new incarnation, whether or not
    /// this actor shares a channel with it. Messages that were under way from or to the lost one
    /// are gone. At the conductor, Joined comes when all living stages have their channels to the
    /// new one, so that a Begin posted then reaches a complete pipeline. A peer may be lost again
    /// before it ever joined.
    virtual void on_peer([[maybe_unused]] StageId peer, [[maybe_unused]] PeerChange change) {}
};

}  // namespace paceline
