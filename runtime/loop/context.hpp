// Context: everything an actor may ask of the world.
//
// Production binds it to rings, timers and the stage's device; the one-process world and the
// simulation bind it to queues and a virtual clock. An actor has no other way out: it reads no
// clock, environment or file, and its handlers never wait. Compute is an effect too: submit()
// returns at once, and the completion reaches the actor as a call of `done` from its own loop.
//
// Threads: all calls come from the actor's loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ipc/base/ids.hpp"
#include "ipc/transport/push.hpp"
#include "runtime/observe/counters.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

using Micros = std::chrono::microseconds;

enum class JobOutcome : std::uint8_t { Done, Cancelled };

struct Context {
    Context() = default;
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    virtual ~Context() = default;

    [[nodiscard]] virtual Micros now() const = 0;
    /// Sends one hot message (ipc/wire/messages.hpp). Full is an answer: the caller keeps what it
    /// wanted to send and is told by its loop when there is room (Actor::on_room). A message to
    /// a peer that is lost (Actor::on_peer) is dropped, counted, and Ok.
    [[nodiscard]] virtual Push send(StageId to,
                                    std::uint16_t kind,
                                    std::span<const std::byte> bytes) = 0;
    /// Calls `wake` after `delay`, unless the actor was stopped by then.
    virtual void schedule(Micros delay, std::function<void()> wake) = 0;
    /// Runs `work` on the stage's device; `done` follows on the actor's loop. The label says what
    /// it is about: the trace shows it, and the simulation takes its cost from it.
    virtual void submit(const JobLabel& label,
                        std::function<JobOutcome()> work,
                        std::function<void(JobOutcome)> done) = 0;

    /// A number that cannot be predicted from the last one; from a seed, so a simulated run repeats.
    [[nodiscard]] virtual std::uint64_t random() = 0;
    /// Records an instant; its time is filled in.
    virtual void trace(TraceEvent event) = 0;
    virtual void count(Counter counter, std::uint64_t add = 1) = 0;
    virtual void set(Gauge gauge, std::uint64_t value) = 0;
};

}  // namespace paceline
