// The frame of a hot message: the bytes that travel in a ring. Of a Wave:
//
//     WaveHeader | WavePart x part_count | WaveRow x row_count
//                | WaveDraw x draw_count | TokenWeight x drawn_token_count
//
// so a wave of one row takes 92 bytes, and a prefill of 512 rows about 15 KB. Every other message is
// its own frame.
// Invariant: decode_wave() accepts exactly the lengths that wave_length_fits() does. Errors: Protocol,
// with count and limit. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline::msg {

inline constexpr std::uint32_t kWaveDrawnTokensMax = kVerifyRowsMax * kDrawnSupportMax;

/// Bytes of a wave's frame.
[[nodiscard]] constexpr std::uint32_t wave_frame_bytes(std::uint32_t parts,
                                                       std::uint32_t rows,
                                                       std::uint32_t draws = 0,
                                                       std::uint32_t drawn_tokens = 0) {
    return static_cast<std::uint32_t>(sizeof(WaveHeader) + parts * sizeof(WavePart) +
                                      rows * sizeof(WaveRow) + draws * sizeof(WaveDraw) +
                                      drawn_tokens * sizeof(TokenWeight));
}

/// Whether a frame has the length that its counts say, and the counts are within their limits.
[[nodiscard]] bool wave_length_fits(std::span<const std::byte> frame);

/// Borrowed from the message.
template <PlainMessage M>
[[nodiscard]] std::span<const std::byte> frame_of(const M& message) {
    return std::as_bytes(std::span{&message, 1});
}
[[nodiscard]] std::vector<std::byte> frame_of(const Wave& wave);

[[nodiscard]] Result<Wave> decode_wave(std::span<const std::byte> frame);

}  // namespace paceline::msg
