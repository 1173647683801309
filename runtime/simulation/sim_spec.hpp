// SimProcessSpec: one process of a simulated pipeline: its actors, its kind of device, what follows
// its death. Plain values; any thread.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/loop/actor.hpp"
#include "runtime/loop/process_spec.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

/// The actors of one incarnation and what they own (backends, sources).
struct SimBody {
    SimBody() = default;
    SimBody(const SimBody&) = delete;
    SimBody& operator=(const SimBody&) = delete;
    virtual ~SimBody() = default;
    [[nodiscard]] virtual Actor& actor(StageId id) = 0;
};

struct SimProcessSpec {
    ProcessSpec process;  // cores and payload are not used here
    std::function<std::unique_ptr<SimBody>()> make;
    /// The kind of device. false: cores, on which a job occupies the loop, as in StageLoop:
    /// messages and timers wait until it has ended. true: a device beside the loop (a GPU):
    /// messages are handled during the time of a job, and the job's function is called at the end
    /// of that time, so it sees their effects. Jobs run one at a time either way.
    bool handlers_during_jobs = false;
    /// Of a device on which the jobs of other processes with this name run meanwhile
    /// (shared_device.hpp); empty: it has one of its own. Without faults and job limits alone.
    std::string device{};
    std::vector<EdgeSpec> local_edges{};  // between its own actors; the world fills them in

    [[nodiscard]] bool hosts(StageId actor) const {
        return std::find(process.actors.begin(), process.actors.end(), actor) !=
               process.actors.end();
    }
};

}  // namespace paceline
