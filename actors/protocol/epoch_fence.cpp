#include "actors/protocol/epoch_fence.hpp"

#include <fmt/core.h>

#include "actors/protocol/message_checks.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

bool has_epoch_of_channel(StageContext& context,
                          StageId from,
                          std::uint16_t kind,
                          const msg::Route& route) {
    const Epoch of_channel = context.epoch_of(from);
    if (route.epoch == of_channel || planted(PlantedBug::EpochUnchecked)) return true;
    count_fenced(context, from, kind, route);
    context.report_fault(
        from, {Errc::Protocol,
               fmt::format("a message of kind {} claims epoch {}, its sender is at epoch {}", kind,
                           route.epoch.value, of_channel.value)});
    return false;
}

}  // namespace paceline
