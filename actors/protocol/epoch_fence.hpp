// The epoch that a message claims, compared with that of the channel it came by.
//
// An incarnation has channels of its own, so a message of another epoch is none of a former
// incarnation's: its sender has written what it must not, and one claim of a wild epoch must not make
// what it says afterwards look old. It is fenced and its sender reported, to be replaced.
#pragma once

#include <cstdint>

#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// False: the message changes nothing; it has been counted, and its sender reported.
[[nodiscard]] bool has_epoch_of_channel(StageContext& context,
                                        StageId from,
                                        std::uint16_t kind,
                                        const msg::Route& route);

}  // namespace paceline
