// The rules of the hot messages: the table that every ring between stages is given.
// Constant; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ipc/base/limits.hpp"
#include "ipc/transport/kind_rule.hpp"
#include "ipc/wire/messages.hpp"
#include "ipc/wire/wave_frame.hpp"

namespace paceline {

template <msg::PlainMessage M>
[[nodiscard]] constexpr KindRule exactly(Urgency urgency) {
    return {static_cast<std::uint16_t>(M::kKind), sizeof(M), sizeof(M), urgency};
}

inline constexpr KindRule kWaveRule{
    static_cast<std::uint16_t>(msg::Wave::kKind), msg::wave_frame_bytes(1, 1),
    msg::wave_frame_bytes(kWavePartsMax, kWaveRowsMax, kVerifyRowsMax, msg::kWaveDrawnTokensMax),
    Urgency::Normal, msg::wave_length_fits};

inline constexpr std::array kHotKinds = {
    exactly<msg::Proposal>(Urgency::Normal),   kWaveRule,
    exactly<msg::TensorNote>(Urgency::Normal), exactly<msg::Verdict>(Urgency::Urgent),
    exactly<msg::Stop>(Urgency::Urgent),       exactly<msg::Draw>(Urgency::Normal),
};

/// The longest frame where no wave of more than `wave_rows` rows travels, and one with drawn candidates
/// only if there are `draws`.
[[nodiscard]] constexpr std::uint32_t frame_bytes_for(std::uint32_t wave_rows, bool draws = false) {
    return std::max<std::uint32_t>(
        sizeof(msg::Proposal),
        msg::wave_frame_bytes(kWavePartsMax, wave_rows, draws ? kVerifyRowsMax : 0,
                              draws ? msg::kWaveDrawnTokensMax : 0));
}

}  // namespace paceline
