#include "model/reference/row_contract.hpp"

#include <algorithm>
#include <vector>

#include "ipc/base/check.hpp"

namespace paceline::reference {
namespace {

void check_row(const Row& row, const ModelConfig& config, const SegmentBounds& segment) {
    PACE_CHECK(2 * segment.first_layer <= row.first && row.first <= row.last &&
                   row.last <= 2 * segment.last_layer,
               "a row's sub-layers lie inside the segment");
    PACE_CHECK(row.first > 0 || (row.token >= 0 && row.token < config.vocab_size),
               "a row that starts at sub-layer 0 has a token of the vocabulary");
    PACE_CHECK(row.prefix_count >= 0 && row.path_count >= 0 && row.position >= 0 &&
                   row.prefix_count + row.path_count == row.position + 1,
               "a row sees one key per position up to its own");
    for (Position p = 0; p <= row.position; ++p) {
        PACE_CHECK(row.key_slot(p) >= 0 && row.key_slot(p) < segment.kv_slots,
                   "visible keys lie in slots that exist");
    }
    PACE_CHECK(row.key_slot(row.position) == row.slot, "a row's last visible key is its own");
}

/// Two rows that write one slot in one sub-layer would read each other's keys.
void check_slots_differ(std::span<const Row> rows, int sublayer) {
    std::vector<KvSlot> written;
    for (const Row& row : rows) {
        if (runs(row, sublayer)) written.push_back(row.slot);
    }
    std::sort(written.begin(), written.end());
    PACE_CHECK(std::adjacent_find(written.begin(), written.end()) == written.end(),
               "no two rows of a call write the same slot");
}

}  // namespace

bool runs(const Row& row, int sublayer) {
    return row.first <= sublayer && sublayer < row.last &&
           (row.mask == nullptr || !row.mask->skips(sublayer));
}

void check_rows(std::span<const Row> rows,
                const ModelConfig& config,
                const SegmentBounds& segment) {
    for (const Row& row : rows) check_row(row, config, segment);
    for (int layer = segment.first_layer; layer < segment.last_layer; ++layer) {
        check_slots_differ(rows, 2 * layer);
    }
}

}  // namespace paceline::reference
