#include "runtime/parent/conductor_memory.hpp"

#include <utility>

#include "runtime/loop/control_port.hpp"

namespace paceline {

Status ConductorMemory::open() {
    Result<ShmFile> board = CancelBoard::create();
    if (!board.ok()) return board.error();
    board_file_ = std::move(board).value();
    return {};
}

Result<std::shared_ptr<CancelBoard>> ConductorMemory::map_board() const {
    Result<ShmRegion> board_memory = ShmRegion::attach(board_file_.fd(), 1);
    if (!board_memory.ok()) return board_memory.error();
    Result<CancelBoard> board = CancelBoard::attach(std::move(board_memory).value());
    if (!board.ok()) return board.error();
    return std::make_shared<CancelBoard>(std::move(board).value());
}

Result<StageTelemetryView> ConductorMemory::open_telemetry(std::uint32_t trace_events) {
    Result<ShmFile> file = StageTelemetry::create(kConductor, Epoch{1}, "conductor", trace_events);
    if (!file.ok()) return file.error();
    telemetry_file_ = std::move(file).value();
    Result<StageTelemetryView> view = StageTelemetryView::attach(telemetry_file_.fd());
    if (!view.ok()) return view.error();
    Result<ShmRegion> memory = ShmRegion::attach(telemetry_file_.fd(), 1);
    if (!memory.ok()) return memory.error();
    Result<StageTelemetry> telemetry = StageTelemetry::attach(std::move(memory).value());
    if (!telemetry.ok()) return telemetry.error();
    telemetry_ = std::make_shared<StageTelemetry>(std::move(telemetry).value());
    return view;
}

}  // namespace paceline
