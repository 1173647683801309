// The rules of the hot messages: the table that every ring between stages is given.
// Constant; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "ipc/transport/kind_rule.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

template <msg::HotMessage M>
[[nodiscard]] constexpr KindRule exactly(Urgency urgency) {
    return {static_cast<std::uint16_t>(M::kKind), sizeof(M), sizeof(M), urgency};
}

inline constexpr std::array kHotKinds = {
    exactly<msg::Proposal>(Urgency::Normal),   exactly<msg::Wave>(Urgency::Normal),
    exactly<msg::TensorNote>(Urgency::Normal), exactly<msg::Verdict>(Urgency::Urgent),
    exactly<msg::Stop>(Urgency::Urgent),
};

}  // namespace paceline
