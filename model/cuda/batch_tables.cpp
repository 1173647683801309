#include "model/cuda/batch_tables.hpp"

#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline {
namespace {

constexpr std::size_t kPartWords = 64;  // parts begin on 256 bytes
constexpr std::size_t kZeroBytes = 4;

std::size_t rounded(std::size_t words) {
    return (words + kPartWords - 1) / kPartWords * kPartWords;
}

std::size_t words_before_plan(std::size_t rows) {
    return rounded(1) + 4 * rounded(rows);
}

}  // namespace

std::size_t BatchTables::device_bytes(const BatchLimits& limits) {
    return 4 *
           (words_before_plan(static_cast<std::size_t>(limits.rows)) +
            static_cast<std::size_t>(cuda::attention_plan_words_max(limits.rows, limits.splits)));
}

std::size_t BatchTables::pinned_bytes(const BatchLimits& limits) {
    return device_bytes(limits) + kZeroBytes;
}

bool BatchTables::make(const BatchLimits& limits, BatchTables& to) {
    const std::size_t bytes = device_bytes(limits);
    to.recorded_rows_ = static_cast<std::size_t>(std::min(limits.rows, cuda::kBatchRows));
    to.place(to.recorded_rows_);
    if (!cuda::PinnedMemory::allocate(bytes, to.pinned_) ||
        !cuda::PinnedMemory::allocate(kZeroBytes, to.zero_))
        return false;
    std::memset(to.zero_.data(), 0, kZeroBytes);
    return true;
}

bool BatchTables::add_device(const BatchLimits& limits) {
    return cuda::DeviceMemory::allocate(device_bytes(limits), memory_.emplace_back());
}

TablePlaces BatchTables::on(std::size_t device) const {
    const auto* words = memory_[device].as<std::int32_t>();
    return {words,
            words + tokens_at_,
            words + slots_at_,
            words + row_index_at_,
            words + positions_at_,
            words + plan_at_};
}

/// Where the parts of a batch of up to `rows` rows stand.
void BatchTables::place(std::size_t rows) {
    tokens_at_ = rounded(1);
    slots_at_ = tokens_at_ + rounded(rows);
    row_index_at_ = slots_at_ + rounded(rows);
    positions_at_ = row_index_at_ + rounded(rows);
    plan_at_ = positions_at_ + rounded(rows);
}

void BatchTables::write(std::span<const Row> rows, ActiveRows active, int unit_rows) {
    place(std::max(recorded_rows_, active.size()));
    auto* words = pinned_.as<std::int32_t>();
    words[0] = static_cast<std::int32_t>(active.size());
    active_.clear();
    for (std::size_t a = 0; a < active.size(); ++a) {
        const Row& row = rows[static_cast<std::size_t>(active[a])];
        active_.push_back(row);
        words[tokens_at_ + a] = begins_with_token(row) ? row.token : -1;
        words[slots_at_ + a] = row.slot;
        words[row_index_at_ + a] = active[a];
        words[positions_at_ + a] = row.position;
    }
    plan_.build(active_, unit_rows);
    const std::span<const std::int32_t> plan = plan_.words();
    bytes_now_ = 4 * (plan_at_ + plan.size());
    PACE_CHECK(bytes_now_ <= pinned_.bytes(), "a batch within the tables' limits");
    std::memcpy(words + plan_at_, plan.data(), plan.size_bytes());
}

void BatchTables::send(std::size_t device, cuda::Stream& stream) const {
    stream.to_device(memory_[device].data(), pinned_.data(), bytes_now_);
}

void BatchTables::stop(std::size_t device, cuda::Stream& urgent) const {
    urgent.to_device(memory_[device].data(), zero_.data(), kZeroBytes);
    urgent.finish();
}

}  // namespace paceline
