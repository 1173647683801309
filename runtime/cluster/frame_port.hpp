// FramePort: where the parts of this folder put frames for the other machine.
//
// Implemented by NodeLink (node_link.hpp) and by tests. One thread, that of the relay.
#pragma once

#include "ipc/remote/node_frames.hpp"
#include "ipc/remote/secure_connection.hpp"

namespace paceline {

class FramePort {
public:
    FramePort() = default;
    FramePort(const FramePort&) = delete;
    FramePort& operator=(const FramePort&) = delete;
    virtual ~FramePort() = default;

    /// As SecureConnection::send(), never waits. After Full the relay is pumped again once there is
    /// room.
    [[nodiscard]] virtual remote::Sent send(const remote::Frame& frame,
                                            remote::Lane lane,
                                            bool urgent) = 0;
};

}  // namespace paceline
