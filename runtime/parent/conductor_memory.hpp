// ConductorMemory: the shared memory that the conductor's process owns: the cancel board, which all
// stages map, and its own telemetry block.
//
// Threads: the supervisor's; the objects that it returns are used by the conductor's loop.
#pragma once

#include <cstdint>
#include <memory>

#include "ipc/base/result.hpp"
#include "ipc/transport/shm_region.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {

class ConductorMemory {
public:
    /// Creates the cancel board.
    [[nodiscard]] Status open();
    [[nodiscard]] int board_fd() const { return board_file_.fd(); }
    [[nodiscard]] Result<std::shared_ptr<CancelBoard>> map_board() const;

    /// Creates and maps the conductor's telemetry block.
    [[nodiscard]] Result<StageTelemetryView> open_telemetry(std::uint32_t trace_events);
    /// nullptr before open_telemetry().
    [[nodiscard]] const std::shared_ptr<StageTelemetry>& telemetry() const { return telemetry_; }

private:
    ShmFile board_file_;
    ShmFile telemetry_file_;
    std::shared_ptr<StageTelemetry> telemetry_;  // shared with the conductor's loop
};

}  // namespace paceline
