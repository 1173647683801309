// Compares the epoch in a message with that of the channel it came by.
//
// Each incarnation has its own channels, so a message with another epoch does not come from an
// earlier incarnation: its sender has written a wrong epoch. The message is dropped and counted,
// and the sender is reported, to be replaced. Epochs in messages are never taken over, so a wrong
// one cannot make later messages stale.
#pragma once

#include <cstdint>

#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// False: drop the message; it has been counted, and its sender reported.
[[nodiscard]] bool has_epoch_of_channel(StageContext& context,
                                        StageId from,
                                        std::uint16_t kind,
                                        const msg::Route& route);

}  // namespace paceline
