// StageLoop: the life of a process that hosts actors.
//
// One thread. Each turn: cold messages that were announced, hot messages of every incoming ring
// in the order of the wiring, messages between actors of this process, room that somebody
// waited for, due timers, one job. Then it waits on the process's one doorbell: it spins as long
// as the wiring says and sleeps at most `poll_limit`. Jobs run on this thread between messages:
// a CPU stage owns its cores, so a helper thread would only take them from the job itself.
//
//     Wiring wiring = ...;                            // stage_process.hpp or supervisor.hpp
//     StageLoop loop(std::move(wiring), port, {});
//     loop.add(stage_id, actor);
//     Status ended = loop.run();
//
// A peer's corrupt frame ends the loop with Errc::Protocol; a frame of an old epoch is dropped
// and counted. Owns the wiring, borrows actors and port, which must outlive it.
#pragma once

#include <cstdint>
#include <memory>

#include "ipc/base/result.hpp"
#include "runtime/actor.hpp"
#include "runtime/control_port.hpp"
#include "runtime/wiring.hpp"

namespace paceline {

struct StageLoopOptions {
    /// The longest sleep, and so the longest time until a closed control socket, a dead child or
    /// a signal is noticed where nobody rings (at most 100 ms).
    Micros poll_limit{20'000};
    /// Frames taken from one ring before the others have their turn.
    std::uint32_t burst = 16;
};

struct StageLoopCounters {
    std::uint64_t frames_in = 0;
    std::uint64_t frames_out = 0;
    std::uint64_t stale_frames = 0;  // of an old epoch: dropped
    std::uint64_t full = 0;          // sends that met a full channel
    std::uint64_t sleeps = 0;
    std::uint64_t jobs = 0;
    Micros job_time{0};
    Micros wait_time{0};
};

class StageLoop {
public:
    StageLoop(Wiring wiring, ControlPort& port, const StageLoopOptions& options);
    StageLoop(const StageLoop&) = delete;
    StageLoop& operator=(const StageLoop&) = delete;
    ~StageLoop();

    /// Hosts `actor` under the address `id`: the wiring's own id, or, for actors that share the
    /// process, any other; what they send to each other never leaves it.
    void add(StageId id, Actor& actor);

    /// Runs until an actor stops the loop, the conductor sends Shutdown (both end well), an
    /// actor fails, a channel is corrupt or the port reports an error. After a good end it may
    /// run again: the actors go on where they were (on_start() is called the first time only).
    [[nodiscard]] Status run();

    [[nodiscard]] const StageLoopCounters& counters() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
