// Which hidden states a segment keeps for replays, and in which slots.
#include "actors/decoding/retained_states.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/toy/toy_backend.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test file
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): a test file

namespace {

struct Watch final : CancelToken::RowWatch {
    std::vector<bool> rows;
    [[nodiscard]] bool stale(std::size_t row) const override {
        return row < rows.size() && rows[row];
    }
};

struct Kept {
    FakeBackend backend{0, 2, 64};
    RetainedStates states{backend, 32};
    Watch watch;

    /// Rows of these slots, each with the number `value` in all its places.
    void keep(const std::vector<KvSlot>& slots,
              float value,
              std::int32_t first = 0,
              bool gaps = false) {
        std::vector<float> hidden(slots.size() * kFakeDim, value);
        std::vector<Row> rows(slots.size());
        std::vector<RowSource> inputs(slots.size());
        for (std::size_t i = 0; i < slots.size(); ++i) {
            rows[i].slot = slots[i];
            rows[i].first = first;
            rows[i].last = 4;
            if (!gaps) inputs[i] = {ConstHiddenRows{hidden}, i};
        }
        states.keep(rows, inputs, hidden, watch);
    }
    [[nodiscard]] float at(KvSlot slot) {
        std::vector<float> row(kFakeDim);
        backend.gather(std::vector{states.state_of(slot)}, row);
        return row[kFakeDim - 1];
    }
};

}  // namespace

TEST_CASE("a row's state is found by its slot, whatever rows it ran with") {
    Kept kept;
    kept.keep({3, 4, 5, 9, 7}, 1.0F);
    kept.keep({4}, 2.0F);
    CHECK(kept.at(3) == 1.0F);
    CHECK(kept.at(4) == 2.0F);
    CHECK(kept.at(5) == 1.0F);
    CHECK(kept.at(9) == 1.0F);
    CHECK(kept.at(7) == 1.0F);
}

TEST_CASE("slots beyond the memory have no state") {
    Kept kept;
    kept.keep({31, 32, 33}, 1.0F);
    CHECK(kept.at(31) == 1.0F);
    CHECK(!kept.states.has(32));
}

TEST_CASE("a stale row, whose layers may have been left out, changes no state of its slot") {
    Kept kept;
    kept.keep({0, 1, 2}, 1.0F);
    kept.watch.rows = {false, true, false};
    kept.keep({0, 1, 2}, 2.0F);
    CHECK(kept.at(0) == 2.0F);
    CHECK(kept.at(1) == 1.0F);
    CHECK(kept.at(2) == 2.0F);
}

TEST_CASE("a row that passed through changes no state, one that a draft had computed here does") {
    Kept kept;
    kept.keep({6}, 1.0F);
    kept.keep({6}, 2.0F, 4, true);
    CHECK(kept.at(6) == 1.0F);
    kept.keep({6}, 3.0F, 4, false);
    CHECK(kept.at(6) == 3.0F);
}
