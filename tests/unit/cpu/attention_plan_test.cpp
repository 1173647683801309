#include "model/cpu/attention_plan.hpp"

#include <numeric>

#include <doctest/doctest.h>

#include "model/kernels/cpu/kernel_table.hpp"

namespace paceline {
namespace {

Row row_at(Position position, const std::vector<KvSlot>& slots) {
    Row row;
    row.position = position;
    row.slot = slots[static_cast<std::size_t>(position)];
    row.prefix_slots = slots.data();
    row.prefix_count = position + 1;
    return row;
}

TEST_CASE("home pages are read in place and a page with one strange slot is gathered") {
    std::vector<KvSlot> slots(100);
    std::iota(slots.begin(), slots.end(), 64);  // home in pages 2, 3, 4, 5
    slots[40] = 900;
    const Row rows[] = {row_at(99, slots)};
    PageMap map;
    map.build(rows);
    const std::span<const std::int32_t> pages = map.pages(0);
    CHECK(std::vector<std::int32_t>(pages.begin(), pages.end()) ==
          std::vector<std::int32_t>{2, kGatherPage, 4, 5});
}

TEST_CASE("a page's lanes that a row cannot see do not matter") {
    std::vector<KvSlot> slots(40);
    std::iota(slots.begin(), slots.end(), 0);
    slots[39] = 500;
    const Row rows[] = {row_at(38, slots), row_at(39, slots)};
    PageMap map;
    map.build(rows);
    CHECK(map.pages(0)[1] == 1);
    CHECK(map.pages(1)[1] == kGatherPage);
}

TEST_CASE("a path off the trunk gathers only the pages it touches") {
    std::vector<KvSlot> slots(70);
    std::iota(slots.begin(), slots.end(), 0);
    const KvSlot path[] = {300, 301};
    Row row = row_at(69, slots);
    row.position = 71;
    row.slot = 301;
    row.path_slots = path;
    row.path_count = 2;
    PageMap map;
    map.build({&row, 1});
    const std::span<const std::int32_t> pages = map.pages(0);
    CHECK(std::vector<std::int32_t>(pages.begin(), pages.end()) ==
          std::vector<std::int32_t>{0, 1, kGatherPage});
}

TEST_CASE(
    "row sets join neighbours of one request and units cover every split of every head once") {
    std::vector<KvSlot> a(600);
    std::vector<KvSlot> b(600);
    std::iota(a.begin(), a.end(), 0);
    std::iota(b.begin(), b.end(), 600);
    std::vector<Row> rows;
    for (Position p = 500; p < 511; ++p) rows.push_back(row_at(p, a));
    rows.push_back(row_at(3, b));
    std::vector<int> active(rows.size());
    std::iota(active.begin(), active.end(), 0);
    std::vector<RowSet> sets;
    make_row_sets(rows, active, 8, sets);
    REQUIRE(sets.size() == 3);
    CHECK(sets[0].count == 8);
    CHECK(sets[1].count == 3);
    CHECK(sets[1].last_position == 510);
    CHECK(sets[2].count == 1);
    std::vector<AttentionUnit> units;
    make_units(sets, 2, /*by_split=*/true, units);
    CHECK(units.size() == 2 * (2 + 2 + 1));  // 511 keys are two splits of 256
    make_units(sets, 2, /*by_split=*/false, units);
    CHECK(units.size() == 2 * 3);
}

}  // namespace
}  // namespace paceline
