// The emulated runtime: memory with a limit, streams, graphs, events, faults on demand.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

struct AddArgs {
    float* values;
    float what;
};

void add(AddArgs args) {
    args.values[thread_index()] += args.what;
}

TEST_CASE("a graph does again what was recorded, with what lies there now") {
    const test::OnDevice<float> values(std::vector<float>(32, 1.0F));
    std::vector<float> host(32, 5.0F);
    Stream stream;
    const std::uint64_t launches_before = emulated::launches();
    const Graph graph = stream.record([&] {
        stream.to_device(values.data(), host.data(), 32 * sizeof(float));
        launch(stream, {.threads = 32}, add, {values.data(), 2.0F});
        launch(stream, {.threads = 32}, add, {values.data(), 1.0F});
    });
    CHECK_FALSE(graph.empty());
    CHECK(emulated::launches() == launches_before);
    CHECK(values.take()[31] == 1.0F);
    graph.launch(stream);
    CHECK(values.take()[31] == 8.0F);
    host.assign(32, 10.0F);
    graph.launch(stream);
    CHECK(values.take()[31] == 13.0F);
    CHECK(emulated::launches() == launches_before + 4);
    CHECK(Graph{}.empty());
    CHECK(contains(error_of([&] { Graph{}.launch(stream); }), "empty graph"));
}

TEST_CASE("pieces lie apart on the device and one after the other on the host") {
    const test::OnDevice<int> values(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
    std::vector<int> host(4);
    Stream stream;
    const Pieces pieces{2, 2 * sizeof(int), 5 * sizeof(int)};
    stream.to_host(host.data(), values.data() + 1, pieces);
    stream.finish();
    CHECK(host == std::vector<int>{1, 2, 6, 7});
    host = {10, 20, 30, 40};
    stream.to_device(values.data(), host.data(), pieces);
    stream.finish();
    CHECK(values.take() == std::vector<int>{10, 20, 2, 3, 4, 30, 40, 7});
    // The last piece does not reach as far as to the begin of a next one.
    CHECK(contains(error_of([&] { stream.to_host(host.data(), values.data() + 2, pieces); }),
                   "not within any device memory"));
    CHECK(contains(error_of([&] {
                       stream.to_host(host.data(), values.data(), {2, 8, 4});
                   }),
                   "overlap"));
}

TEST_CASE("a lazy device does one thing at each look, and all of it before finish() returns") {
    const test::OnDevice<float> values(std::vector<float>(32, 1.0F));
    Stream stream;
    const Graph graph = stream.record([&] {
        launch(stream, {.threads = 32}, add, {values.data(), 1.0F});
    });
    emulated::set_lazy(true);
    const emulated::Traffic before = emulated::traffic();
    const std::uint64_t launched = emulated::launches();
    std::vector<float> host(32);
    launch(stream, {.threads = 32}, add, {values.data(), 2.0F});
    graph.launch(stream);
    stream.to_host(host.data(), values.data(), 32 * sizeof(float));
    CHECK(emulated::launches() == launched);
    CHECK_FALSE(stream.idle());
    CHECK(emulated::launches() == launched + 1);
    CHECK_FALSE(stream.idle());
    CHECK(host[3] == 0.0F);
    CHECK(emulated::traffic().waits == before.waits);
    stream.finish();
    CHECK(stream.idle());
    CHECK(host[3] == 4.0F);
    CHECK(emulated::traffic().waits == before.waits + 1);
    CHECK(emulated::traffic().bytes_to_host == before.bytes_to_host + 128);
    emulated::fail_next_launch();
    launch(stream, {.threads = 32}, add, {values.data(), 2.0F});
    CHECK_FALSE(error_of([&] { stream.finish(); }).empty());
    CHECK(error_of([&] { stream.finish(); }).empty());
    emulated::set_lazy(false);
}

TEST_CASE("a recording that fails leaves a stream that works") {
    const test::OnDevice<float> values(std::vector<float>(32, 1.0F));
    Stream stream;
    CHECK_FALSE(
        error_of([&] { (void)stream.record([] { throw DeviceError("planted"); }); }).empty());
    CHECK(contains(error_of([&] { (void)stream.record([&] { stream.finish(); }); }), "records"));
    launch(stream, {.threads = 32}, add, {values.data(), 2.0F});
    CHECK(values.take()[0] == 3.0F);
}

TEST_CASE("memory beyond the limit is refused, and comes back when it is freed") {
    const std::size_t used = emulated::memory_used();
    emulated::set_memory_limit(used + 1000);
    {
        DeviceMemory memory;
        CHECK_FALSE(DeviceMemory::allocate(1001, memory));
        CHECK(memory.data() == nullptr);
        CHECK(DeviceMemory::allocate(600, memory));
        CHECK(use_device(0).free_bytes == 400);
        DeviceMemory other;
        CHECK_FALSE(DeviceMemory::allocate(600, other));
        other = std::move(memory);
        CHECK(other.bytes() == 600);
        CHECK(DeviceMemory::allocate(400, other));  // and lets go of the 600
        CHECK(use_device(0).free_bytes == 600);
        CHECK(DeviceMemory::allocate(0, other));
        CHECK(use_device(0).free_bytes == 1000);
    }
    emulated::set_memory_limit(emulated::kMemoryDefault);
    CHECK(emulated::memory_used() == used);
}

TEST_CASE("device memory is full of NaN at first, and fill and copies do what they say") {
    DeviceMemory memory;
    REQUIRE(DeviceMemory::allocate(64, memory));
    PinnedMemory pinned;
    REQUIRE(PinnedMemory::allocate(64, pinned));
    Stream stream;
    stream.to_host(pinned.data(), memory.data(), 64);
    CHECK(pinned.as<std::uint32_t>()[3] == 0xFFFF'FFFFU);
    stream.fill(memory.data(), 7, 32);
    stream.on_device(memory.data() + 32, memory.data(), 16);
    stream.to_host(pinned.data(), memory.data(), 64);
    stream.finish();
    CHECK(stream.idle());
    CHECK(pinned.as<std::uint8_t>()[31] == 7);
    CHECK(pinned.as<std::uint8_t>(32)[15] == 7);
    CHECK(pinned.as<std::uint8_t>(32)[16] == 0xFF);
}

TEST_CASE("a copy that leaves its device memory is reported, and so is a host address") {
    DeviceMemory memory;
    REQUIRE(DeviceMemory::allocate(64, memory));
    std::vector<std::byte> host(128);
    Stream stream;
    const auto within = "not within any device memory";
    CHECK(contains(error_of([&] { stream.to_device(memory.data(), host.data(), 65); }), within));
    CHECK(contains(error_of([&] { stream.to_host(host.data(), host.data() + 64, 8); }), within));
    CHECK(contains(error_of([&] { stream.fill(memory.data() + 60, 0, 5); }), within));
    CHECK(contains(error_of([&] { stream.on_device(memory.data(), memory.data() + 8, 16); }),
                   "overlap"));
}

TEST_CASE("a launch fails when a test asks for it, once") {
    const test::OnDevice<float> values(std::vector<float>(32, 1.0F));
    Stream stream;
    emulated::fail_next_launch();
    const auto run = [&] { launch(stream, {.threads = 32}, add, {values.data(), 2.0F}); };
    CHECK(contains(error_of(run), "AddArgs"));
    CHECK(values.take()[0] == 1.0F);
    CHECK(error_of(run).empty());
    CHECK(values.take()[0] == 3.0F);
}

TEST_CASE("events are reached in a stream, and in a graph when it runs") {
    Stream stream;
    Event first;
    Event second;
    CHECK_FALSE(first.reached());
    first.record(stream);
    CHECK(first.reached());
    CHECK_FALSE(error_of([&] { (void)Event::seconds_between(first, second); }).empty());
    const Graph graph = stream.record([&] { second.record(stream); });
    CHECK_FALSE(second.reached());
    graph.launch(stream);
    REQUIRE(second.reached());
    CHECK(Event::seconds_between(first, second) >= 0.0);
}

TEST_CASE("there is one emulated device unless a test asks for more") {
    CHECK(use_device(0).capability == 90);
    CHECK(contains(error_of([] { (void)use_device(1); }),
                   "cuda:1 is none of the 1 emulated devices"));
}

}  // namespace
}  // namespace paceline::cuda
