// SimConnection: the control connection between one simulated incarnation and the conductor's
// process: messages to the incarnation, and its reports. Both are delayed and keep their order.
//
// An incarnation that has ended receives nothing more; what it had reported still arrives, as from
// a socket whose peer has died. To and from another machine both take its line (sim_line.hpp).
// One thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "ipc/wire/control.hpp"
#include "runtime/simulation/sim_channel.hpp"
#include "runtime/simulation/sim_site.hpp"

namespace paceline {

using SimChannels = std::vector<std::shared_ptr<SimChannel>>;

// ---- conductor -> process ----

struct SimMail {
    StageId to;
    StageId from;
    control::Message message;
};
struct SimWire {
    SimChannels channels;
    std::vector<StageId> absent;
};
struct SimUnwire {
    std::vector<StageId> peers;
};
struct SimRewire {
    std::vector<StageId> peers;
    Epoch epoch;
    SimChannels channels;
};
/// To the conductor alone; at a stage a Rewire says it too.
struct SimJoined {
    std::vector<StageId> peers;
};
using SimMessage = std::variant<SimMail, SimWire, SimUnwire, SimRewire, SimJoined>;

// ---- and back ----

struct SimHello {};
struct SimReady {};
struct SimRewired {
    StageId peer;
    Epoch epoch;
};
struct SimFailed {
    Error error;
};
/// As control::EdgeFault: the peer has sent what it must not.
struct SimEdgeFault {
    StageId peer;
    Epoch epoch;
    Error error;
};
using SimReport = std::variant<SimHello, SimReady, SimRewired, SimFailed, SimEdgeFault, SimMail>;

class SimConnection {
public:
    explicit SimConnection(const SimIdentity& self) : self_{self} {}

    /// To the incarnation; says when it arrives.
    [[nodiscard]] SimTime send(SimMessage message);
    /// When the first message that was not received arrives; nothing if there is none.
    [[nodiscard]] std::optional<SimTime> next_arrival() const;
    /// The first message, which has arrived.
    [[nodiscard]] SimMessage receive();
    void close() { messages_.clear(); }

    /// To the conductor's process; the event ControlUp announces its arrival.
    void report(SimReport report);
    [[nodiscard]] SimReport take_report();

private:
    [[nodiscard]] SimTime arrival(SimTime planned) const {
        return self_.line ? self_.line->arrival(SimWay::Down, planned) : planned;
    }
    struct OnItsWay {
        SimTime arrives;
        SimMessage message;
    };

    const SimIdentity& self_;
    std::deque<OnItsWay> messages_;
    SimTime last_arrival_{0};
    std::deque<SimReport> reports_;
    SimTime last_report_{0};
};

}  // namespace paceline
