// How large KV caches are by default: whole contexts, or what the fullest memory leaves.
#include "launch/placement/kv_room.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "launch/placement/gpu_plan.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr std::uint64_t kMega = 1'000'000;

PlacedStage stage_on(std::optional<int> gpu) {
    PlacedStage stage;
    stage.device.gpu = gpu;
    return stage;
}

MemoryNeed need_of(std::uint64_t weights, std::uint64_t kv, bool on_gpu = false) {
    return {.name = "stage", .weight_bytes = weights, .kv_bytes = kv, .on_gpu = on_gpu};
}

}  // namespace

TEST_CASE("caches that fit keep all their pages") {
    CHECK(pages_that_fit(640, {}) == 640);
    CHECK(pages_that_fit(640, {{.bytes = 1000, .needed = 1000, .kv = 900}}) == 640);
}

TEST_CASE("caches that do not fit get what the weights leave of 19 twentieths of the memory") {
    // 950 usable, 150 of weights: 800 of the 1600 that were planned.
    CHECK(pages_that_fit(640, {{.bytes = 1000, .needed = 1750, .kv = 1600}}) == 320);
}

TEST_CASE("the fullest memory decides for every stage") {
    const SharedMemory roomy{.bytes = 10000, .needed = 1750, .kv = 1600};
    const SharedMemory tight{.bytes = 1000, .needed = 1750, .kv = 1600};
    const SharedMemory tighter{.bytes = 500, .needed = 1675, .kv = 1600};
    CHECK(pages_that_fit(640, {roomy, tight}) == 320);
    CHECK(pages_that_fit(640, {tighter, tight, roomy}) == 160);
}

TEST_CASE("weights that do not fit leave no page") {
    CHECK(pages_that_fit(640, {{.bytes = 1000, .needed = 2600, .kv = 1600}}) == 0);
}

TEST_CASE("the host has what is on no GPU, each GPU what its stages need") {
    Placement placement;
    placement.stages = {stage_on(0), stage_on(0), stage_on(1), stage_on({})};
    const std::vector<MemoryNeed> needs{
        need_of(5 * kMega, kMega, true), need_of(6 * kMega, 2 * kMega, true),
        need_of(7 * kMega, 3 * kMega, true), need_of(8 * kMega, 4 * kMega)};
    GpuMachine machine{.source = "test", .name = "test", .gpus = {}};
    machine.gpus.resize(2);
    machine.gpus[0].memory_bytes = 80'000 * kMega;
    machine.gpus[1].memory_bytes = 40'000 * kMega;
    const auto memories =
        memories_of(placement, needs, AvailableMemory{.bytes = 99 * kMega, .whence = ""}, machine);
    REQUIRE(memories.size() == 3);
    CHECK(memories[0].bytes == 99 * kMega);
    CHECK(memories[0].needed == 12 * kMega);
    CHECK(memories[0].kv == 4 * kMega);
    CHECK(memories[1].bytes == room_of(machine.gpus[0]));
    CHECK(memories[1].kv == 3 * kMega);
    CHECK(memories[2].kv == 3 * kMega);
}

TEST_CASE("a host that does not say what it has left is not asked") {
    Placement placement;
    placement.stages = {stage_on({})};
    CHECK(memories_of(placement, {need_of(1, 1)}, std::nullopt, GpuMachine{}).empty());
}

TEST_CASE("the table has the size of the cache in tokens and in contexts") {
    CHECK(kv_room_text(20480, 8192) == "KV cache: 20480 tokens, 2.5 contexts of 8192\n");
}
