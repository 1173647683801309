// Context: the interface through which an actor acts on its environment.
//
// In a stage process it is implemented by rings, timers and the stage's device; in the one-process
// tests and the simulation by queues and a virtual clock. An actor uses nothing else: it reads no
// clock, environment variable or file, and its handlers never wait. Jobs too go through it:
// submit() returns at once, and the actor's own loop calls `done` when the job has ended.
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
    /// Sends one data message (ipc/wire/messages.hpp). Full is a normal result: the caller keeps
    /// the message, and the loop calls Actor::on_room when there is room. A message to a peer that
    /// is lost (Actor::on_peer) is dropped and counted; the result is Ok.
    [[nodiscard]] virtual Push send(StageId to,
                                    std::uint16_t kind,
                                    std::span<const std::byte> bytes) = 0;
    /// Calls `wake` after `delay`, unless the actor was stopped by then.
    virtual void schedule(Micros delay, std::function<void()> wake) = 0;
    /// Runs `work` on the stage's device; then the actor's loop calls `done`. The label describes
    /// the job in the trace, and the simulation derives its cost from it.
    virtual void submit(const JobLabel& label,
                        std::function<JobOutcome()> work,
                        std::function<void(JobOutcome)> done) = 0;

    /// A pseudo-random number. In the simulation it is derived from the seed.
    [[nodiscard]] virtual std::uint64_t random() = 0;
    /// Records an instant; its time is filled in.
    virtual void trace(TraceEvent event) = 0;
    virtual void count(Counter counter, std::uint64_t add = 1) = 0;
    virtual void set(Gauge gauge, std::uint64_t value) = 0;
};

}  // namespace paceline
