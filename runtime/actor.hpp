// Actor: a state machine whose public part is its inbox, and the context that a stage gives it.
//
// Every method is called by the actor's loop, one at a time, and runs to completion: it changes
// state, sends, submits and returns; it never waits. Effects go only through the context.
// Messages of one sender arrive in the order in which they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/control.hpp"
#include "ipc/tensor_pool.hpp"
#include "runtime/context.hpp"

namespace paceline {

/// What an actor that stands for a stage may ask beyond Context. The same in every world.
struct StageContext : Context {
    /// The address of this actor, and the incarnation of its stage (for Route::epoch).
    [[nodiscard]] virtual StageId self() const = 0;
    [[nodiscard]] virtual Epoch epoch() const = 0;

    /// Sends one cold message: a stage to kConductor, the conductor to any stage. If that fails
    /// the loop ends with the error.
    virtual void post(StageId to, const control::Message& message) = 0;

    /// This end of the tensor pool beside the edge, or nullptr if no tensors travel there. Valid
    /// until the loop ends. Where acquire() finds nothing, Actor::on_room follows.
    [[nodiscard]] virtual TensorProducer* tensors_to(StageId to) = 0;
    [[nodiscard]] virtual TensorConsumer* tensors_from(StageId from) = 0;

    /// Ends the stage: its loop returns this error, the conductor hears of it by name.
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

    /// One hot message (ipc/messages.hpp). The loop has checked that the kind exists and that
    /// the length is the kind's; the fields are the peer's claims and the actor checks them.
    /// The bytes live until the handler returns and are aligned for every message.
    virtual void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) = 0;

    /// One cold message: Begin at a stage; Stats and the like at the conductor. A Begin comes
    /// before any hot message that a stage sent because of it, if the conductor posts it last to
    /// those that act on it first.
    virtual void on_control(StageId from, const control::Message& message) = 0;

    /// There may be room again towards `to`: after send() said Full, or a tensor pool had no
    /// free slot.
    virtual void on_room([[maybe_unused]] StageId to) {}
};

}  // namespace paceline
