// What a backend does that has no better way of its own.
#include "model/backend.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "ipc/base/check.hpp"

namespace paceline {

void check_row(const Backend& backend, const Row& row, const SublayerMask& skipped) {
    PACE_CHECK(row.first >= 2 * backend.first_layer() && row.last <= 2 * backend.last_layer() &&
                   row.first <= row.last,
               "sub-layers of this segment");
    PACE_CHECK(row.first != 0 || (row.token >= 0 && row.token < backend.config().vocab_size),
               "a token of the vocabulary");
    for (int sublayer = row.first; skipped.skips_any() && sublayer < row.last; ++sublayer) {
        const bool row_skips = row.mask != nullptr && row.mask->skips(sublayer);
        PACE_CHECK(row_skips || !skipped.skips(sublayer), "a sub-layer that was loaded");
    }
    check_keys(backend, row);
}

void check_keys(const Backend& backend, const Row& row) {
    PACE_CHECK(row.slot >= 0 && row.slot < backend.kv_slots(), "a slot that exists");
    PACE_CHECK(row.prefix_count >= 0 && row.path_count >= 0 &&
                   row.prefix_count + row.path_count == row.position + 1,
               "the visible keys end with the row's own");
    PACE_CHECK(row.key_slot(row.position) == row.slot, "the last visible key is the row's own");
}

Status check_layers(const ModelConfig& config, int first, int last) {
    if (first >= 0 && first < last && last <= config.layers) return {};
    return Error{Errc::BadArgument,
                 fmt::format("layers [{}, {}) are not a part of the model's {} layers", first, last,
                             config.layers)};
}

void Backend::gather(std::span<const RowSource> rows, HiddenRows to) {
    const auto dim = static_cast<std::size_t>(config().dim);
    PACE_CHECK(to.size() == rows.size() * dim, "a place for each row");
    const std::span<float> out = to.host();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].is_gap()) continue;
        const std::span<const float> from = rows[i].of.subspan(rows[i].row * dim, dim).host();
        std::copy(from.begin(), from.end(), out.begin() + static_cast<std::ptrdiff_t>(i * dim));
    }
}

void Backend::copy(ConstHiddenRows from, HiddenRows to) {
    PACE_CHECK(from.size() == to.size(), "as many rows as are copied");
    std::copy_n(from.host().begin(), from.size(), to.host().begin());
}

RowMemory Backend::make_rows(std::size_t rows) {
    const auto memory =
        std::make_shared<std::vector<float>>(rows * static_cast<std::size_t>(config().dim));
    return {.rows = *memory, .owner = memory};
}

HiddenRows Backend::rows_of(RowMemory& memory, std::size_t rows) {
    const std::size_t floats = rows * static_cast<std::size_t>(config().dim);
    if (memory.rows.size() < floats) memory = make_rows(rows);
    return memory.rows.first(floats);
}

ConstHiddenRows Backend::in_order(std::span<const RowSource> rows, RowMemory& room) {
    const auto dim = static_cast<std::size_t>(config().dim);
    const auto apart = [](const RowSource& a, const RowSource& b) {
        return a.of.data() != b.of.data() || a.row + 1 != b.row;
    };
    if (rows.empty()) return {};
    if (std::adjacent_find(rows.begin(), rows.end(), apart) == rows.end())
        return rows.front().of.subspan(rows.front().row * dim, rows.size() * dim);
    const HiddenRows gathered = rows_of(room, rows.size());
    gather(rows, gathered);
    return gathered;
}

void Backend::head_listed(HeadId /*id*/,
                          ConstHiddenRows /*hidden*/,
                          int /*rows*/,
                          std::span<float> /*logits*/) {
    PACE_CHECK(false, "this backend has no head with a short list");
}

RunOutcome Backend::run_adapter(std::span<const Row> /*rows*/,
                                ConstHiddenRows /*hidden*/,
                                HiddenRows /*out*/,
                                const CancelToken* /*cancel*/) {
    PACE_CHECK(false, "this backend has no adapter");
    return RunOutcome::Cancelled;
}

void Backend::read_kv(KvSlot /*slot*/, KvBytes /*bytes*/) const {
    PACE_CHECK(false, "keys and values of this backend cannot be taken out");
}

void Backend::write_kv(KvSlot /*slot*/, ConstKvBytes /*bytes*/) {
    PACE_CHECK(false, "keys and values of this backend cannot be put back");
}

}  // namespace paceline
