// The plan of a batch's attention on pure data: which rows share units, which slots they name.
#include "model/kernels/cuda/attention_plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include <doctest/doctest.h>

#include "model/kv_layout.hpp"

namespace paceline::cuda {
namespace {

std::vector<KvSlot> home_slots(int count, KvSlot first = 0) {
    std::vector<KvSlot> slots(static_cast<std::size_t>(count));
    std::iota(slots.begin(), slots.end(), first);
    return slots;
}

Row row_at(Position position, const std::vector<KvSlot>& slots) {
    Row row;
    row.position = position;
    row.slot = slots[static_cast<std::size_t>(position)];
    row.prefix_slots = slots.data();
    row.prefix_count = position + 1;
    return row;
}

/// A row of a tree: the trunk's first keys, then its own path.
Row leaf(const std::vector<KvSlot>& trunk, int trunk_keys, const std::vector<KvSlot>& path) {
    Row row;
    row.position = trunk_keys + static_cast<Position>(path.size()) - 1;
    row.slot = path.back();
    row.prefix_slots = trunk.data();
    row.prefix_count = trunk_keys;
    row.path_slots = path.data();
    row.path_count = static_cast<std::int32_t>(path.size());
    return row;
}

/// The T that begins at a word, as the device sees it.
template <class T>
T read(std::span<const std::int32_t> words, std::int32_t at) {
    std::array<std::int32_t, kWordsOf<T>> part{};
    std::copy_n(words.begin() + at, part.size(), part.begin());
    return std::bit_cast<T>(part);
}

/// What every plan must be: each row's keys of each split named once, in order, by its unit.
void check_covers(const AttentionPlan& plan, std::span<const Row> rows, int unit_rows) {
    std::vector<int> seen(rows.size(), 0);
    for (const AttentionUnit& unit : plan.units()) {
        REQUIRE(unit.rows >= 1);
        REQUIRE(unit.rows <= unit_rows);
        const Position begin = unit.split * kAttentionSplit;
        const std::span<const std::int32_t> slots = plan.slots(unit);
        int furthest = 0;
        for (int r = unit.first_row; r < unit.first_row + unit.rows; ++r) {
            const Row& row = rows[static_cast<std::size_t>(r)];
            const int keys = std::min(row.position + 1 - begin, kAttentionSplit);
            REQUIRE(keys >= 1);
            REQUIRE(keys <= unit.keys);
            furthest = std::max(furthest, keys);
            for (int k = 0; k < keys; ++k)
                REQUIRE(slots[static_cast<std::size_t>(k)] == row.key_slot(begin + k));
            seen[static_cast<std::size_t>(r)] += keys;
        }
        CHECK(furthest == unit.keys);
    }
    int splits = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        CHECK(seen[r] == rows[r].position + 1);
        CHECK(plan.rows()[r].keys == rows[r].position + 1);
        splits += attention_splits(rows[r].position + 1);
    }
    CHECK(plan.header().units <= splits);
    CHECK(plan.header().partials <= splits);
    CHECK(static_cast<std::int64_t>(plan.words().size()) <=
          attention_plan_words_max(static_cast<int>(rows.size()), splits));
}

TEST_CASE("a chain shares its units, one for each split") {
    const std::vector<KvSlot> slots = home_slots(300);
    std::vector<Row> rows;
    for (Position p = 296; p < 300; ++p) rows.push_back(row_at(p, slots));
    AttentionPlan plan;
    plan.build(rows, 8);
    check_covers(plan, rows, 8);
    REQUIRE(plan.units().size() == 3);
    CHECK(plan.units()[2].rows == 4);
    CHECK(plan.units()[2].split == 2);
    CHECK(plan.units()[2].keys == 300 - 256);
    CHECK(plan.slots(plan.units()[2]).front() == 256);
}

TEST_CASE("a row takes part only in the splits that it sees") {
    const std::vector<KvSlot> slots = home_slots(200);
    std::vector<Row> rows;
    for (Position p = 125; p < 131; ++p) rows.push_back(row_at(p, slots));
    AttentionPlan plan;
    plan.build(rows, 8);
    check_covers(plan, rows, 8);
    REQUIRE(plan.units().size() == 2);
    CHECK(plan.units()[0].rows == 6);
    CHECK(plan.units()[0].keys == 128);
    CHECK(plan.units()[1].first_row == 3);
    CHECK(plan.units()[1].rows == 3);
    CHECK(plan.units()[1].keys == 3);
    const std::span<const std::int32_t> merges = plan.merges();
    CHECK(std::vector<std::int32_t>(merges.begin(), merges.end()) ==
          std::vector<std::int32_t>{3, 4, 5});
    CHECK(plan.rows()[2].partial == -1);
    CHECK(plan.rows()[3].partial == 0);
    CHECK(plan.rows()[4].partial == 2);
    CHECK(plan.header().partials == 6);
}

TEST_CASE("siblings share the splits below their fork and have units of their own above it") {
    const std::vector<KvSlot> trunk = home_slots(140);
    const std::vector<KvSlot> paths[] = {{140}, {301}, {140, 141}, {140, 303}, {301, 305}};
    std::vector<Row> rows;
    for (const auto& path : paths) rows.push_back(leaf(trunk, 140, path));
    AttentionPlan plan;
    plan.build(rows, 8);
    check_covers(plan, rows, 8);
    std::vector<int> sizes[2];
    for (const AttentionUnit& unit : plan.units()) {
        REQUIRE(unit.split < 2);
        sizes[unit.split].push_back(unit.rows);
    }
    CHECK(sizes[0] == std::vector<int>{5});
    // {301} and {140, 141} do not agree, nor {140, 303} with {140, 141} or with {301, 305}.
    CHECK(sizes[1] == std::vector<int>{1, 1, 1, 1, 1});
}

TEST_CASE("parents and children that follow one another are one unit though their tables differ") {
    const std::vector<KvSlot> trunk = home_slots(10);
    const std::vector<KvSlot> same_trunk = trunk;
    const std::vector<KvSlot> paths[] = {{77}, {77, 78}, {77, 78, 99}};
    const Row rows[] = {leaf(trunk, 10, paths[0]), leaf(same_trunk, 10, paths[1]),
                        leaf(trunk, 10, paths[2])};
    AttentionPlan plan;
    plan.build(rows, 8);
    check_covers(plan, rows, 8);
    CHECK(plan.units().size() == 1);
}

TEST_CASE("a shorter row between two longer ones does not hide that they differ") {
    const std::vector<KvSlot> trunk = home_slots(10);
    const std::vector<KvSlot> paths[] = {{77, 78}, {77}, {77, 79}};
    std::vector<Row> rows;
    for (const auto& path : paths) rows.push_back(leaf(trunk, 10, path));
    AttentionPlan plan;
    plan.build(rows, 8);
    check_covers(plan, rows, 8);
    REQUIRE(plan.units().size() == 2);
    CHECK(plan.units()[0].rows == 2);
}

TEST_CASE("rows of two requests never share a unit") {
    const std::vector<KvSlot> one = home_slots(50);
    const std::vector<KvSlot> other = home_slots(50, 64);
    const Row rows[] = {row_at(48, one), row_at(49, one), row_at(48, other), row_at(49, other)};
    AttentionPlan plan;
    plan.build(rows, 8);
    check_covers(plan, rows, 8);
    CHECK(plan.units().size() == 2);
}

TEST_CASE("units that a limit cuts apart share one list of slots") {
    const std::vector<KvSlot> slots = home_slots(64);
    std::vector<Row> rows;
    for (Position p = 0; p < 64; ++p) rows.push_back(row_at(p, slots));
    AttentionPlan plan;
    plan.build(rows, 10);
    check_covers(plan, rows, 10);
    REQUIRE(plan.units().size() == 7);
    CHECK(plan.units()[6].rows == 4);
    for (const AttentionUnit& unit : plan.units()) CHECK(unit.slots_at == 0);
    CHECK(plan.units()[0].keys == 10);
    CHECK(plan.words().size() == kWordsOf<AttentionHeader> + 7 * kWordsOf<AttentionUnit> +
                                     64 * kWordsOf<AttentionRow> + 64);
}

TEST_CASE("the words hold what the plan says, where the header says") {
    const std::vector<KvSlot> slots = home_slots(300, 32);
    const Row rows[] = {row_at(5, slots), row_at(299, slots)};
    AttentionPlan plan;
    plan.build(rows, 8);
    const std::span<const std::int32_t> words = plan.words();
    const auto header = read<AttentionHeader>(words, 0);
    CHECK(header.units == 3);
    CHECK(header.rows == 2);
    CHECK(header.merges == 1);
    CHECK(words[static_cast<std::size_t>(header.merges_at)] == 1);
    const auto last = read<AttentionUnit>(words, header.units_at + 2 * kWordsOf<AttentionUnit>);
    CHECK(last.split == 2);
    CHECK(words[static_cast<std::size_t>(header.slots_at + last.slots_at)] == 32 + 256);
    const auto row = read<AttentionRow>(words, header.rows_at + kWordsOf<AttentionRow>);
    CHECK(row.keys == 300);
    CHECK(row.partial == 0);
}

TEST_CASE("a plan that is built again forgets what it was and keeps its memory") {
    const std::vector<KvSlot> slots = home_slots(300);
    std::vector<Row> many;
    for (Position p = 260; p < 300; ++p) many.push_back(row_at(p, slots));
    AttentionPlan plan;
    plan.build(many, 8);
    const std::int32_t* memory = plan.words().data();
    const Row one[] = {row_at(0, slots)};
    plan.build(one, 8);
    check_covers(plan, one, 8);
    CHECK(plan.words().data() == memory);
    CHECK(plan.header().merges == 0);
    CHECK(plan.header().partials == 0);
    plan.build({}, 8);
    CHECK(plan.header().units == 0);
}

TEST_CASE("units fill the tiles of queries that their rows need") {
    CHECK(attention_unit_rows(1, 3) == 1);
    CHECK(attention_unit_rows(2, 3) == 2);
    CHECK(attention_unit_rows(40, 3) == 10);
    CHECK(attention_unit_rows(40, 16) == 2);
    for (int group = 1; group <= kAttentionGroupMax; ++group) {
        for (int rows = 1; rows <= 64; ++rows) {
            const int most = attention_unit_rows(rows, group);
            CHECK(most >= 1);
            CHECK(most * group <= attention_tiles(rows, group) * kAttentionTile);
            CHECK(attention_tiles(most, group) <= attention_tiles(rows, group));
        }
    }
}

}  // namespace
}  // namespace paceline::cuda
