// The frame of a data message: the bytes that travel in a ring. Of a Batch:
//
//     BatchHeader | BatchPart x part_count | BatchRow x row_count
//                | BatchDraw x draw_count | TokenWeight x drawn_token_count
//
// so a batch of one row takes 100 bytes, and a prefill of 512 rows about 15 KB. Every other message
// is its own frame.
// Invariant: decode_batch() accepts exactly the lengths that batch_length_fits() does. Errors:
// Protocol, with count and limit. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline::msg {

inline constexpr std::uint32_t kBatchDrawnTokensMax = kVerifyRowsMax * kDrawnSupportMax;

/// Bytes of a batch's frame.
[[nodiscard]] constexpr std::uint32_t batch_frame_bytes(std::uint32_t parts,
                                                        std::uint32_t rows,
                                                        std::uint32_t draws = 0,
                                                        std::uint32_t drawn_tokens = 0) {
    return static_cast<std::uint32_t>(sizeof(BatchHeader) + parts * sizeof(BatchPart) +
                                      rows * sizeof(BatchRow) + draws * sizeof(BatchDraw) +
                                      drawn_tokens * sizeof(TokenWeight));
}

/// Whether a frame has the length that its counts say, and the counts are within their limits.
[[nodiscard]] bool batch_length_fits(std::span<const std::byte> frame);

/// Borrowed from the message.
template <PlainMessage M>
[[nodiscard]] std::span<const std::byte> frame_of(const M& message) {
    return std::as_bytes(std::span{&message, 1});
}
[[nodiscard]] std::vector<std::byte> frame_of(const Batch& batch);

[[nodiscard]] Result<Batch> decode_batch(std::span<const std::byte> frame);

}  // namespace paceline::msg
