// RemoteNode: the node agent of the stages of one other machine.
//
// To the supervisor it is what LocalNode is for this machine; it passes everything on to the agent
// there and back (node_slot.hpp); what a loss of the machine means for them is decided by NodeRoll
// (node_roll.hpp). What differs: memory is described instead of passed
// (remote_channels.hpp), deadlines are judged there, and the machine can be lost as a whole:
//
//   [Connected] --- connection lost: on_silence for each stage ---> [Leased]
//       ^                                                              |
//       |                                   lease over: on_machine_lost for each stage
//       +------ a machine is there: on_machine_back --- [Lost] <-------+
//
// A start while there is no machine counts as lost with it. Telemetry comes as copies into the
// blocks that the conductor keeps. Threads: one, the supervisor's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cluster/node_roll.hpp"
#include "runtime/cluster/node_slot.hpp"
#include "runtime/cluster/remote_channels.hpp"
#include "runtime/parent/node_agent.hpp"

namespace paceline {

class RemoteNode final : public NodeAgent {
public:
    /// `slot` is borrowed and outlives it. `name`: of the machine, for messages.
    RemoteNode(NodeSlot& slot, std::string name, const NodeEvents& events)
        : RemoteNode{slot, std::move(name), events, slot.take_over()} {}
    ~RemoteNode() override;

    [[nodiscard]] Status start(Incarnation who,
                               const ProcessSpec& process,
                               const std::vector<std::string>& command) override;
    [[nodiscard]] Status send(Incarnation who,
                              const control::Message& message,
                              std::span<const int> files,
                              std::chrono::milliseconds limit,
                              Envelope envelope) override;
    void kill(Incarnation who) override;
    void poll() override;
    void wait(Deadline /*deadline*/) override { poll(); }
    [[nodiscard]] Status wake_with(const MakeBell& bells) override;
    [[nodiscard]] std::string title(Incarnation who) const override;
    [[nodiscard]] std::string last_words(Incarnation /*who*/) const override { return ""; }
    [[nodiscard]] pid_t pid(Incarnation /*who*/) const override { return 0; }
    [[nodiscard]] bool judges_deadlines(StageId /*stage*/) const override { return true; }
    void ask_figures() override;
    [[nodiscard]] bool has_figures() const override {
        return !roll_.is_connected() || figures_had_ == figures_asked_;
    }

private:
    struct Stage {
        ProcessSpec process;
        ShmRegion telemetry;   // the conductor's block of it; empty before its Assign
        std::int64_t pid = 0;  // on its machine
    };
    RemoteNode(NodeSlot& slot,
               std::string name,
               const NodeEvents& events,
               std::optional<Epoch> connected)
        : slot_{slot},
          name_{name},
          events_{events},
          epoch_{connected.value_or(Epoch{})},
          roll_{std::move(name), connected} {}
    [[nodiscard]] Stage* find(Incarnation who);
    [[nodiscard]] Status assign(Incarnation who,
                                const control::Assign& message,
                                std::span<const int> files);
    /// `wired` is a Wire or Rewire.
    template <class Wired>
    [[nodiscard]] Status send_channels(Incarnation who,
                                       Wired wired,
                                       std::span<const int> files,
                                       std::uint32_t limit_ms);
    void drop(Incarnation who, std::span<const StageId> peers);
    void post(NodeSlot::Command command) { slot_.post(epoch_, std::move(command)); }
    void post_control(Incarnation who,
                      const control::Message& message,
                      std::vector<std::uint64_t> files,
                      std::uint32_t limit_ms,
                      Envelope envelope = {});

    void give_up_unstarted();
    void tell_news();
    void take(const LinkLost& lost);
    void take(const LeaseEnded& ended);
    void take(const LinkBack& back);
    void take(const EdgeBroken& broken);
    void take(const remote::StageReport& report);
    void take(const remote::StageControl& control);
    void take(const remote::Counters& counters);

    NodeSlot& slot_;
    std::string name_;
    const NodeEvents& events_;
    Epoch epoch_{};  // of the newest connection
    NodeRoll roll_;
    std::map<Incarnation, Stage> stages_;  // that the roll knows
    RemoteChannels channels_;
    std::map<std::uint32_t, std::pair<Incarnation, control::EdgeWire>> edges_;  // relayed
    bool has_board_ = false;                                                    // this connection's
    std::uint64_t figures_asked_ = 0;  // the newest CountersAsk
    std::uint64_t figures_had_ = 0;    // the newest that was answered
};

}  // namespace paceline
