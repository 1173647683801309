// The rules of the data messages: the table that every ring between stages is given.
// Constant; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ipc/base/limits.hpp"
#include "ipc/transport/kind_rule.hpp"
#include "ipc/wire/batch_frame.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

template <msg::PlainMessage M>
[[nodiscard]] constexpr KindRule exactly(Urgency urgency) {
    return {static_cast<std::uint16_t>(M::kKind), sizeof(M), sizeof(M), urgency};
}

inline constexpr KindRule kBatchRule{
    static_cast<std::uint16_t>(msg::Batch::kKind), msg::batch_frame_bytes(1, 1),
    msg::batch_frame_bytes(
        kBatchPartsMax, kBatchRowsMax, kVerifyRowsMax, msg::kBatchDrawnTokensMax),
    Urgency::Normal, msg::batch_length_fits};

inline constexpr std::array kDataKinds = {
    exactly<msg::Proposal>(Urgency::Normal),   kBatchRule,
    exactly<msg::TensorNote>(Urgency::Normal), exactly<msg::Verdict>(Urgency::Urgent),
    exactly<msg::Stop>(Urgency::Urgent),       exactly<msg::Draw>(Urgency::Normal),
    exactly<msg::Price>(Urgency::Normal),      exactly<msg::Prefix>(Urgency::Normal),
    exactly<msg::Scores>(Urgency::Urgent),     exactly<msg::OwnTokens>(Urgency::Urgent),
};

/// The longest frame where no batch of more than `batch_rows` rows travels, and one with drawn
/// candidates only if there are `draws`.
[[nodiscard]] constexpr std::uint32_t frame_bytes_for(std::uint32_t batch_rows,
                                                      bool draws = false) {
    return std::max<std::uint32_t>(
        std::max({sizeof(msg::Proposal), sizeof(msg::Prefix), sizeof(msg::Scores),
                  sizeof(msg::OwnTokens)}),
        msg::batch_frame_bytes(kBatchPartsMax, batch_rows, draws ? kVerifyRowsMax : 0,
                               draws ? msg::kBatchDrawnTokensMax : 0));
}

}  // namespace paceline
