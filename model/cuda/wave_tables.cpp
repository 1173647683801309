#include "model/cuda/wave_tables.hpp"

#include <cstring>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr std::size_t kPartWords = 64;  // parts begin on 256 bytes

std::size_t rounded(std::size_t words) {
    return (words + kPartWords - 1) / kPartWords * kPartWords;
}

std::size_t words_before_plan(int rows_max, int pairs) {
    const auto rows = static_cast<std::size_t>(rows_max);
    return rounded(1) + 3 * rounded(rows) + 2 * rounded(rows * static_cast<std::size_t>(pairs));
}

}  // namespace

std::size_t WaveTables::device_bytes(int rows_max, int context, int pairs) {
    return 4 * (words_before_plan(rows_max, pairs) +
                static_cast<std::size_t>(cuda::attention_plan_words_max(rows_max, context)));
}

bool WaveTables::make(int rows_max, int context, const RopeTable& rope, WaveTables& to) {
    const std::size_t bytes = device_bytes(rows_max, context, rope.pairs());
    to.rope_ = &rope;
    to.place(rows_max, rope.pairs());
    if (!cuda::DeviceMemory::allocate(bytes, to.memory_) ||
        !cuda::PinnedMemory::allocate(bytes, to.pinned_) ||
        !cuda::PinnedMemory::allocate(4, to.zero_))
        return false;
    std::memset(to.zero_.data(), 0, 4);
    return true;
}

void WaveTables::place(int rows_max, int pairs) {
    const std::size_t rows = rounded(static_cast<std::size_t>(rows_max));
    const std::size_t angles =
        rounded(static_cast<std::size_t>(rows_max) * static_cast<std::size_t>(pairs));
    tokens_at_ = rounded(1);
    slots_at_ = tokens_at_ + rows;
    row_index_at_ = slots_at_ + rows;
    cosines_at_ = row_index_at_ + rows;
    sines_at_ = cosines_at_ + angles;
    plan_at_ = sines_at_ + angles;
}

void WaveTables::send(std::span<const Row> rows,
                      ActiveRows active,
                      int unit_rows,
                      cuda::Stream& stream) {
    auto* words = pinned_.as<std::int32_t>();
    words[0] = static_cast<std::int32_t>(active.size());
    active_.clear();
    const auto pairs = static_cast<std::size_t>(rope_->pairs());
    for (std::size_t a = 0; a < active.size(); ++a) {
        const Row& row = rows[static_cast<std::size_t>(active[a])];
        active_.push_back(row);
        words[tokens_at_ + a] = row.first == 0 ? row.token : -1;
        words[slots_at_ + a] = row.slot;
        words[row_index_at_ + a] = active[a];
        rope_->fill(row.position, {pinned_.as<float>(4 * (cosines_at_ + a * pairs)), pairs},
                    {pinned_.as<float>(4 * (sines_at_ + a * pairs)), pairs});
    }
    plan_.build(active_, unit_rows);
    const std::span<const std::int32_t> plan = plan_.words();
    const std::size_t bytes = 4 * (plan_at_ + plan.size());
    PACE_CHECK(bytes <= pinned_.bytes(), "a wave within the tables' limits");
    std::memcpy(words + plan_at_, plan.data(), plan.size_bytes());
    stream.to_device(memory_.data(), pinned_.data(), bytes);
}

void WaveTables::stop(cuda::Stream& urgent) const {
    urgent.to_device(memory_.data(), zero_.data(), 4);
    urgent.finish();
}

}  // namespace paceline
