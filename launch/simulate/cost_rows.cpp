#include "launch/simulate/cost_rows.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr int kChunkRows = static_cast<int>(kVerifyRowsMax);

}  // namespace

double median(std::vector<double> values) {
    PACE_CHECK(!values.empty(), "nothing was measured");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

CostRows::CostRows(Backend& backend)
    : backend_{backend}, slots_(static_cast<std::size_t>(backend.kv_slots())) {
    std::iota(slots_.begin(), slots_.end(), 0);
}

void CostRows::feed(Position begin, int count, int layers) {
    rows_.clear();
    for (int i = 0; i < count; ++i) {
        const Position position = begin + i;
        // Any tokens will do, as long as they are spread over the embedding table.
        const auto token =
            static_cast<TokenId>((static_cast<std::uint64_t>(position) * 7919 + 31) %
                                 static_cast<std::uint64_t>(backend_.config().vocab_size));
        rows_.push_back({.token = token,
                         .position = position,
                         .slot = position,
                         .prefix_slots = slots_.data(),
                         .prefix_count = position + 1,
                         .first = 0,
                         .last = 2 * layers});
    }
    hidden_.resize(static_cast<std::size_t>(count) *
                   static_cast<std::size_t>(backend_.config().dim));
    backend_.run_layers(rows_, hidden_, nullptr);
}

double CostRows::layers_once(int rows, int context, int layers) {
    PACE_CHECK(rows >= 1 && context + rows <= backend_.kv_slots(), "rows beyond the KV cache");
    for (; filled_ < context; filled_ += std::min(kChunkRows, context - filled_))
        feed(filled_, std::min(kChunkRows, context - filled_), backend_.config().layers);
    const auto begin = Clock::now();
    feed(context, rows, layers);
    const double seconds = seconds_since(begin);
    filled_ = std::min(filled_, context);
    return seconds;
}

double CostRows::head_once(HeadId head, int rows) {
    const auto count = static_cast<std::size_t>(rows);
    // Filled with something finite: run_layers() left it so, or nothing ever did.
    hidden_.resize(count * static_cast<std::size_t>(backend_.config().dim), 0.25F);
    logits_.resize(count * static_cast<std::size_t>(backend_.config().vocab_size));
    const auto begin = Clock::now();
    backend_.head(head, hidden_, rows, logits_);
    return seconds_since(begin);
}

}  // namespace paceline
