#include "ipc/wire/batch_frame.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

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
    if (count > 0) std::memcpy(items.data(), frame.data(), bytes);
    frame = frame.subspan(bytes);
    return items;
}

bool counts_fit(const BatchHeader& header) {
    return header.part_count >= 1 && header.part_count <= kBatchPartsMax && header.row_count >= 1 &&
           header.row_count <= kBatchRowsMax && header.draw_count <= kVerifyRowsMax &&
           header.drawn_token_count <= kBatchDrawnTokensMax;
}

std::uint32_t bytes_of(const BatchHeader& header) {
    return batch_frame_bytes(header.part_count, header.row_count, header.draw_count,
                             header.drawn_token_count);
}

}  // namespace

bool batch_length_fits(std::span<const std::byte> frame) {
    BatchHeader header{};
    if (frame.size() < sizeof header) return false;
    std::memcpy(&header, frame.data(), sizeof header);
    return counts_fit(header) && frame.size() == bytes_of(header);
}

std::vector<std::byte> frame_of(const Batch& batch) {
    const BatchHeader header{
        .epoch = batch.epoch,
        .part_count = static_cast<std::uint32_t>(batch.parts.size()),
        .row_count = static_cast<std::uint32_t>(batch.rows.size()),
        .tensor = batch.tensor,
        .tensor_generation = batch.tensor_generation,
        .tensor_rows = batch.tensor_rows,
        .draw_count = static_cast<std::uint32_t>(batch.draws.size()),
        .drawn_token_count = static_cast<std::uint32_t>(batch.drawn_tokens.size()),
        .cost = batch.cost};
    std::vector<std::byte> frame(bytes_of(header));
    std::byte* at = put(frame.data(), std::span{&header, 1});
    at = put(at, std::span{batch.parts});
    at = put(at, std::span{batch.rows});
    at = put(at, std::span{batch.draws});
    put(at, std::span{batch.drawn_tokens});
    return frame;
}

Result<Batch> decode_batch(std::span<const std::byte> frame) {
    BatchHeader header{};
    if (frame.size() < sizeof header) {
        return Error{Errc::Protocol, fmt::format("a batch has {} bytes, its header alone has {}",
                                                 frame.size(), sizeof header)};
    }
    std::memcpy(&header, frame.data(), sizeof header);
    if (!counts_fit(header)) {
        return Error{Errc::Protocol,
                     fmt::format("a batch has part_count = {}, row_count = {}, draw_count = {} and "
                                 "drawn_token_count = {}, must be 1 to {}, 1 to {}, at most {} and "
                                 "at most {}",
                                 header.part_count, header.row_count, header.draw_count,
                                 header.drawn_token_count, kBatchPartsMax, kBatchRowsMax,
                                 kVerifyRowsMax, kBatchDrawnTokensMax)};
    }
    const std::uint32_t bytes = bytes_of(header);
    if (frame.size() != bytes) {
        return Error{Errc::Protocol,
                     fmt::format("a batch with part_count = {} and row_count = {} has {} bytes, "
                                 "not {}",
                                 header.part_count, header.row_count, frame.size(), bytes)};
    }
    Batch batch{.epoch = header.epoch,
                .tensor = header.tensor,
                .tensor_generation = header.tensor_generation,
                .tensor_rows = header.tensor_rows,
                .cost = header.cost};
    frame = frame.subspan(sizeof header);
    batch.parts = take<BatchPart>(frame, header.part_count);
    batch.rows = take<BatchRow>(frame, header.row_count);
    batch.draws = take<BatchDraw>(frame, header.draw_count);
    batch.drawn_tokens = take<TokenWeight>(frame, header.drawn_token_count);
    return batch;
}

}  // namespace paceline::msg
