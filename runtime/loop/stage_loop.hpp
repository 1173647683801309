// StageLoop: the life of a process that hosts actors.
//
// One thread. Each iteration: control messages that were announced, data messages of every incoming
// ring in the order of the wiring, messages between actors of this process, room that a producer
// waited for, due timers, one job. Then it waits on the process's one doorbell: it spins as long
// as the wiring says and sleeps at most `poll_limit`. Jobs run on this thread between messages:
// a CPU stage owns its cores, so a helper thread would only take them from the job itself.
//
// Several actors of one process (actor_host.hpp does this in every environment): their jobs run one
// at a time, in the order of submission. Between two jobs the loop handles the completion of the
// first, every message inside this process that follows from it, and messages that have arrived
// from other processes (`burst` frames of each ring). So a job that an actor submits when the last
// job has ended comes after those submitted before, and an actor that needs the messages of its
// neighbours first can submit after it has handled them.
//
//     Wiring wiring = ...;                            // stage_process.hpp or supervisor.hpp
//     StageLoop loop(std::move(wiring), port, {});
//     loop.add(stage_id, actor);
//     Status ended = loop.run();
//
// Channels come and go with their peers (control_port.hpp). When a peer is lost its channels are
// closed: what is sent to it is dropped. Their memory stays mapped until every job is done that
// was submitted before. A peer that breaks a channel's layout is reported and treated as lost.
// Tensors of an edge with a link (edge_links.hpp) lie on devices. A frame that announces one which
// has not arrived is held, and with it the frames of that edge behind it; all else goes on. The
// loop sleeps meanwhile: links ring its doorbell.
// The loop publishes each activity in the process's telemetry block with a deadline, so that the
// parent can detect a hang.
// Threads: one, except for post(). Each run() may be on another thread, if the threads synchronise.
// Owns the wiring, borrows actors, port and device, which must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"
#include "runtime/loop/actor.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

struct StageLoopOptions {
    /// The longest sleep, and so the longest time until a closed control socket, a dead child or
    /// a signal is noticed where no bell rings (at most 100 ms).
    Micros poll_limit{20'000};
    /// Frames taken from one ring before the others are read.
    std::uint32_t burst = 16;
    /// Of this process; nullptr: it has none, and an edge whose tensors lie on one is an error.
    TensorDevice* device = nullptr;
    /// The time of one row through everything of this process, measured before; 0: unknown.
    Micros row_time{0};
};

class StageLoop {
public:
    StageLoop(Wiring wiring, ControlPort& port, const StageLoopOptions& options);
    StageLoop(const StageLoop&) = delete;
    StageLoop& operator=(const StageLoop&) = delete;
    ~StageLoop();

    /// Hosts `actor` under one of the wiring's addresses, or, if no other process writes to it, any
    /// other; what actors of one process send to each other never leaves it.
    void add(StageId id, Actor& actor);
    /// A channel between two actors of this process, before run(). Needed where tensors travel on
    /// it; others are made with usual bounds when they are first used. Errors: as
    /// ActorHost::connect().
    [[nodiscard]] Status connect(const EdgeSpec& edge);

    /// Runs until an actor stops the loop, the conductor sends Shutdown (both end well), an
    /// actor fails or the port reports an error. After a good end it may run again: the actors go
    /// on where they were (on_start() is called the first time only).
    [[nodiscard]] Status run();

    /// From any thread: the thread that runs the loop calls `call` between two handlers; if no
    /// thread runs the loop, the next run() or run_posted() does.
    void post(std::function<void()> call);
    /// Calls the posted functions. Only while no thread runs the loop.
    void run_posted();

    /// The telemetry block of the wiring: counters and trace.
    [[nodiscard]] StageTelemetry& telemetry();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
