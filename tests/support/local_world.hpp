// LocalWorld: all actors of a pipeline in one process and one thread, on queues.
//
// The same actors, the same Context, no rings, no other process.
// Delivery is deterministic: actors take turns in the order in which they were added, one
// message each; a job runs when no message is left. With Clock::Virtual time stands still while
// there is anything to do and then jumps to the next timer, so a run has the same order of
// events every time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ipc/base/result.hpp"
#include "runtime/loop/actor.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

class LocalWorld {
public:
    enum class Clock : std::uint8_t { Real, Virtual };

    explicit LocalWorld(Clock clock = Clock::Real);
    LocalWorld(const LocalWorld&) = delete;
    LocalWorld& operator=(const LocalWorld&) = delete;
    ~LocalWorld();

    /// Before run(). `actor` must outlive the world.
    void add(StageId id, Actor& actor);
    /// A channel with the same bounds that it would have between processes.
    void connect(const EdgeSpec& edge);

    /// A control message from the conductor (or from whomever `from` names).
    void post(StageId from, StageId to, control::Message message);

    /// Runs until an actor calls stop() (ok), fails (its error), or `give_up` answers true
    /// (Errc::Cancelled). If nothing can ever happen again: ok with Clock::Virtual.
    [[nodiscard]] Status run(const std::function<bool()>& give_up = {});

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
