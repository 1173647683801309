// ControlPort: where a loop's cold messages go and come from.
//
// A stage has one peer, the conductor (stage_process.hpp); the conductor has all of its stages
// (supervisor.hpp). Called by the loop's thread only.
#pragma once

#include <functional>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/control.hpp"

namespace paceline {

/// The conductor's address. Stages are numbered from 1.
inline constexpr StageId kConductor{0};

class ControlPort {
public:
    using Deliver = std::function<void(StageId from, const control::Message& message)>;

    ControlPort() = default;
    ControlPort(const ControlPort&) = delete;
    ControlPort& operator=(const ControlPort&) = delete;
    virtual ~ControlPort() = default;

    [[nodiscard]] virtual Status send(StageId to, const control::Message& message) = 0;
    /// Delivers what has arrived, without waiting. An error ends the loop: the peer is gone, a
    /// stage died, the user pressed Ctrl-C (Errc::Cancelled).
    [[nodiscard]] virtual Status poll(const Deliver& deliver) = 0;
};

}  // namespace paceline
