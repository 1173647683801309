// AgentStages: the stages of an agent's machine: started, watched and killed as the conductor says.
//
// The agent is their parent, with a LocalNode as the conductor has one for its own machine. What
// stages say goes to the conductor as it came; deadlines are compared here, with the clock by which
// they were published. An offer between two stages of this machine is passed on here, because
// descriptors do not travel. Destruction kills and reaps whatever is left.
// Threads: one, which forks the stages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"
#include "runtime/cluster/node_link.hpp"
#include "runtime/cluster/node_memory.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/parent/node_agent.hpp"
#include "runtime/parent/stage_watch.hpp"

namespace paceline {

/// StartStage::spec: what the agent has to know of a stage besides.
struct StageOrigin {
    OnDeath on_death = OnDeath::StopRun;
    JobRecords jobs{};  // of earlier incarnations
};
[[nodiscard]] std::vector<std::byte> encode(const StageOrigin& origin);
[[nodiscard]] Result<StageOrigin> decode_origin(std::span<const std::byte> bytes);

/// What of a stage's assignment the agent decides: the paths that it may read, its cores. Opaque to
/// the runtime. An error is told to the conductor as the stage's own.
using CheckAssignment =
    std::function<Result<std::vector<std::byte>>(const std::vector<std::byte>& payload)>;

class AgentStages {
public:
    using Nanos = std::chrono::nanoseconds;  // CLOCK_MONOTONIC

    /// All are borrowed. Errc::System if children cannot be watched.
    [[nodiscard]] static Result<std::unique_ptr<AgentStages>> create(NodeLink& link,
                                                                     NodeMemory& memory,
                                                                     CheckAssignment check,
                                                                     std::vector<int> cores);
    AgentStages(const AgentStages&) = delete;
    AgentStages& operator=(const AgentStages&) = delete;
    ~AgentStages();

    [[nodiscard]] Status wake_with(const NodeAgent::MakeBell& bells) {
        return node_->wake_with(bells);
    }
    void start(const remote::StartStage& order);
    void kill(const remote::Kill& order);
    /// Errc::Protocol: a message that does not decode, or names memory that is not there.
    [[nodiscard]] Status pass_on(const remote::StageControl& control);
    /// What the stages have said, and whether one hangs.
    void poll(Nanos now);
    /// The telemetry blocks as they are now, and the trace events since the last call.
    [[nodiscard]] remote::Counters counters(Nanos now);
    /// Says counters until all trace events of the stages until now are said; the last frame has
    /// `number`.
    void answer(const remote::CountersAsk& ask);
    /// What the conductor's clock shows more than this machine's.
    void set_clock_ahead(Nanos ahead) { clock_ahead_ = ahead; }
    [[nodiscard]] bool empty() const { return stages_.empty(); }
    /// The channel that this stage shares with another machine is broken by it.
    void blame(remote::StageKey who, const Error& error);

private:
    struct Stage {
        std::vector<StageId> actors;
        ShmFile telemetry_file;
        ShmRegion telemetry_memory;
        StageTelemetryView telemetry;
        StageWatch watch;
        bool ready = false;
        bool reported = false;          // that it hangs
        std::string refusal{};          // why the agent ended it
        std::uint64_t events_sent = 0;  // of its trace
    };
    AgentStages(NodeLink& link, NodeMemory& memory, CheckAssignment check, std::vector<int> cores)
        : link_{link}, memory_{memory}, check_{std::move(check)}, cores_{std::move(cores)} {}
    [[nodiscard]] NodeEvents handlers();
    [[nodiscard]] Status try_start(const remote::StartStage& order);
    void on_message(Incarnation who, ControlSocket::Received received);
    void on_offer(const control::EdgeOffer& offer, std::span<const OwnedFd> files);
    void look_for_hangs(Nanos now);
    void say_events(const Stage& of);
    [[nodiscard]] static std::vector<std::byte> new_events(Stage& stage);
    void report(Incarnation who,
                remote::StageReport::What what,
                std::int64_t number,
                std::string text);
    void fail(Incarnation who, const Error& error);
    [[nodiscard]] Stage* find(Incarnation who);

    NodeLink& link_;
    NodeMemory& memory_;
    CheckAssignment check_;
    std::vector<int> cores_;  // a stage's are places in it
    std::map<Incarnation, Stage> stages_;
    Nanos clock_ahead_{0};
    Nanos polled_at_{0};
    Nanos looked_at_{0};
    std::unique_ptr<NodeAgent> node_;  // last: its events end before what they touch
};

}  // namespace paceline
