#include "actors/protocol/sender_fault.hpp"

#include "runtime/loop/control_port.hpp"

namespace paceline {

Status blame_sender(StageContext& context, StageId from, const Error& error) {
    if (error.code != Errc::Protocol || from == kConductor) return error;
    context.report_fault(from, error);
    return {};
}

}  // namespace paceline
