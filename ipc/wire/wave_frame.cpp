#include "ipc/wire/wave_frame.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <string>

#include "ipc/base/limits.hpp"

namespace paceline::msg {
namespace {

/// Copies `items` to `at`, and returns what lies behind them.
template <class Item>
std::byte* put(std::byte* at, std::span<const Item> items) {
    const std::span<const std::byte> bytes = std::as_bytes(items);
    return std::copy(bytes.begin(), bytes.end(), at);
}

template <class Item>
std::vector<Item> take(std::span<const std::byte>& frame, std::uint32_t count) {
    std::vector<Item> items(count);
    const std::size_t bytes = count * sizeof(Item);
    std::memcpy(items.data(), frame.data(), bytes);
    frame = frame.subspan(bytes);
    return items;
}

bool counts_fit(const WaveHeader& header) {
    return header.part_count >= 1 && header.part_count <= kWavePartsMax && header.row_count >= 1 &&
           header.row_count <= kWaveRowsMax && header.draw_count <= kVerifyRowsMax &&
           header.drawn_token_count <= kWaveDrawnTokensMax;
}

std::uint32_t bytes_of(const WaveHeader& header) {
    return wave_frame_bytes(header.part_count, header.row_count, header.draw_count,
                            header.drawn_token_count);
}

}  // namespace

bool wave_length_fits(std::span<const std::byte> frame) {
    WaveHeader header{};
    if (frame.size() < sizeof header) return false;
    std::memcpy(&header, frame.data(), sizeof header);
    return counts_fit(header) && frame.size() == bytes_of(header);
}

std::vector<std::byte> frame_of(const Wave& wave) {
    const WaveHeader header{
        .epoch = wave.epoch,
        .part_count = static_cast<std::uint32_t>(wave.parts.size()),
        .row_count = static_cast<std::uint32_t>(wave.rows.size()),
        .tensor = wave.tensor,
        .tensor_generation = wave.tensor_generation,
        .tensor_rows = wave.tensor_rows,
        .draw_count = static_cast<std::uint32_t>(wave.draws.size()),
        .drawn_token_count = static_cast<std::uint32_t>(wave.drawn_tokens.size())};
    std::vector<std::byte> frame(bytes_of(header));
    std::byte* at = put(frame.data(), std::span{&header, 1});
    at = put(at, std::span{wave.parts});
    at = put(at, std::span{wave.rows});
    at = put(at, std::span{wave.draws});
    put(at, std::span{wave.drawn_tokens});
    return frame;
}

Result<Wave> decode_wave(std::span<const std::byte> frame) {
    WaveHeader header{};
    if (frame.size() < sizeof header) {
        return Error{Errc::Protocol, fmt::format("a wave has {} bytes, its header alone has {}",
                                                 frame.size(), sizeof header)};
    }
    std::memcpy(&header, frame.data(), sizeof header);
    if (!counts_fit(header)) {
        return Error{Errc::Protocol,
                     fmt::format("a wave has part_count = {}, row_count = {}, draw_count = {} and "
                                 "drawn_token_count = {}, must be 1 to {}, 1 to {}, at most {} and "
                                 "at most {}",
                                 header.part_count, header.row_count, header.draw_count,
                                 header.drawn_token_count, kWavePartsMax, kWaveRowsMax,
                                 kVerifyRowsMax, kWaveDrawnTokensMax)};
    }
    const std::uint32_t bytes = bytes_of(header);
    if (frame.size() != bytes) {
        return Error{Errc::Protocol,
                     fmt::format("a wave with part_count = {} and row_count = {} has {} bytes, "
                                 "not {}",
                                 header.part_count, header.row_count, frame.size(), bytes)};
    }
    Wave wave{.epoch = header.epoch,
              .tensor = header.tensor,
              .tensor_generation = header.tensor_generation,
              .tensor_rows = header.tensor_rows};
    frame = frame.subspan(sizeof header);
    wave.parts = take<WavePart>(frame, header.part_count);
    wave.rows = take<WaveRow>(frame, header.row_count);
    wave.draws = take<WaveDraw>(frame, header.draw_count);
    wave.drawn_tokens = take<TokenWeight>(frame, header.drawn_token_count);
    return wave;
}

}  // namespace paceline::msg
