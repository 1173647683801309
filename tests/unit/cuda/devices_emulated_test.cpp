// Several emulated devices: whose memory is whose, streams that wait for each other, and recordings
// of several streams.
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

/// So many devices that are let into each other's memory, or not; one again at the end.
class Devices {
public:
    explicit Devices(int count) { emulated::set_devices(count); }
    ~Devices() {
        emulated::set_lazy(false);
        emulated::set_ahead(-1);
        emulated::set_peers_possible(true);
        emulated::set_devices(1);
    }
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;
};

struct CopyArgs {
    const float* from;
    float* to;
};

/// to = from + 1.
void copy_more(CopyArgs args) {
    args.to[thread_index()] = args.from[thread_index()] + 1.0F;
}

/// 32 numbers of a device, a stream and an event there. Unwritten ones are NaN.
struct Rank {
    explicit Rank(int index) : device{(set_device(index), index)} {
        REQUIRE(DeviceMemory::allocate(32 * sizeof(float), memory));
    }
    void add_to(const Rank& other) {
        set_device(device);
        launch(stream, {.threads = 32}, copy_more, {memory.as<float>(), other.memory.as<float>()});
    }
    void mark() {
        set_device(device);
        event.record(stream);
    }
    [[nodiscard]] float number() {
        float value = 0.0F;
        stream.to_host(&value, memory.data(), sizeof value);
        stream.finish();
        return value;
    }
    int device;
    DeviceMemory memory;
    Stream stream;
    Event event{EventUse::Order};
};

TEST_CASE("a kernel is given memory of another device only after enable_peers()") {
    const Devices devices{3};
    Rank first{0};
    Rank second{1};
    first.stream.fill(first.memory.data(), 0, 128);
    CHECK(contains(error_of([&] { first.add_to(second); }),
                   "points into memory of cuda:1, which cuda:0 was not let into"));
    CHECK(enable_peers({0, 1}));
    CHECK(error_of([&] { first.add_to(second); }).empty());
    CHECK(second.number() == 1.0F);
    Rank third{2};
    CHECK(contains(error_of([&] { first.add_to(third); }), "cuda:2"));
    emulated::set_peers_possible(false);
    CHECK_FALSE(enable_peers({0, 2}));
    CHECK_FALSE(error_of([&] { first.add_to(third); }).empty());
    CHECK(enable_peers({0}));
    CHECK(contains(error_of([] { (void)enable_peers({0, 3}); }), "cuda:3 is none of the 3"));
}

TEST_CASE("each device has as much memory as the limit says") {
    const Devices devices{2};
    const std::size_t before = emulated::memory_used(0);
    emulated::set_memory_limit(before + 1000);
    DeviceMemory first;
    CHECK(DeviceMemory::allocate(900, first));
    DeviceMemory second;
    CHECK_FALSE(DeviceMemory::allocate(900, second));
    CHECK(use_device(1).free_bytes >= 1000);
    CHECK(DeviceMemory::allocate(900, second));
    set_device(0);
    CHECK(emulated::memory_used(0) == before + 900);
    second = DeviceMemory{};
    CHECK(emulated::memory_used(0) == before + 900);
    emulated::set_memory_limit(emulated::kMemoryDefault);
}

TEST_CASE("kernels and events belong to streams of the thread's device") {
    const Devices devices{2};
    Rank first{0};
    Rank second{1};  // its device is the thread's now
    CHECK(contains(error_of([&] {
                       launch(first.stream, {.threads = 32}, copy_more,
                              {first.memory.as<float>(), first.memory.as<float>()});
                   }),
                   "launched by a thread of cuda:1 in a stream of cuda:0"));
    CHECK(contains(error_of([&] { first.event.record(second.stream); }),
                   "an event of cuda:0 recorded in a stream of cuda:1"));
}

TEST_CASE("a stream that waits for an event finds what was done before it, else what was there") {
    const Devices devices{2};
    Rank first{0};
    Rank second{1};
    CHECK(enable_peers({0, 1}));
    first.stream.fill(first.memory.data(), 0, 128);
    emulated::set_lazy(true);
    first.add_to(second);
    first.mark();
    CHECK(std::isnan(second.number()));
    second.stream.wait(first.event);
    CHECK(second.number() == 1.0F);
    // What comes after the event is not waited for.
    second.add_to(first);
    second.mark();
    first.stream.wait(second.event);
    CHECK(first.number() == 2.0F);
    first.add_to(second);
    CHECK(second.number() == 1.0F);
    first.stream.finish();
    CHECK(second.number() == 3.0F);
    const Event never{EventUse::Order};
    second.stream.wait(never);
    CHECK(second.number() == 3.0F);
    CHECK_FALSE(error_of([&] { second.stream.wait(Event{}); }).empty());
}

TEST_CASE("streams that run ahead show a wait that is missing there") {
    const Devices devices{2};
    Rank first{0};
    Rank second{1};
    CHECK(enable_peers({0, 1}));
    first.stream.fill(first.memory.data(), 0, 128);
    emulated::set_lazy(true);
    const auto answer = [&](bool waits) {
        second.stream.fill(second.memory.data(), 0, 128);
        second.stream.finish();
        first.add_to(second);  // 1
        first.mark();
        if (waits) second.stream.wait(first.event);
        second.add_to(first);
        second.mark();
        first.stream.wait(second.event);
        const float number = first.number();  // 2 if the second stream had waited
        first.stream.fill(first.memory.data(), 0, 128);
        first.stream.finish();
        return number;
    };
    CHECK(answer(true) == 2.0F);
    CHECK(answer(false) == 2.0F);  // by luck: the first stream was looked at first
    emulated::set_ahead(1);
    CHECK(answer(true) == 2.0F);
    CHECK(answer(false) == 1.0F);
}

TEST_CASE("a recording of streams on two devices is one graph, whichever device runs ahead") {
    const Devices devices{2};
    Rank first{0};
    Rank second{1};
    CHECK(enable_peers({0, 1}));
    const auto work = [&](bool waits_back, bool joins) {
        set_device(0);
        first.mark();
        second.stream.wait(first.event);
        first.add_to(second);
        first.mark();
        if (waits_back) second.stream.wait(first.event);
        second.add_to(first);
        second.mark();
        if (joins) first.stream.wait(second.event);
    };
    const auto replayed = [&](const Graph& graph, int ahead) {
        emulated::set_ahead(ahead);
        first.stream.fill(first.memory.data(), 0, 128);
        first.stream.fill(second.memory.data(), 0, 128);
        graph.launch(first.stream);
        return first.number();
    };
    const Graph right = first.stream.record([&] { work(true, true); });
    const Graph wrong = first.stream.record([&] { work(false, true); });
    for (int round = 0; round < 2; ++round) {
        for (const int ahead : {-1, 0, 1}) CHECK(replayed(right, ahead) == 2.0F);
    }
    CHECK(replayed(wrong, 0) == 2.0F);
    CHECK(replayed(wrong, 1) == 1.0F);
    emulated::set_ahead(-1);
    CHECK(contains(error_of([&] { (void)first.stream.record([&] { work(true, false); }); }),
                   "without waiting for a stream"));
    // An edge of a recording is no place outside of it, nor the other way round.
    CHECK(contains(error_of([&] { first.stream.wait(second.event); }), "recording that has ended"));
    second.mark();
    CHECK(contains(
        error_of([&] { (void)first.stream.record([&] { first.stream.wait(second.event); }); }),
        "from outside"));
    CHECK(error_of([&] { first.stream.wait(second.event); }).empty());
}

}  // namespace
}  // namespace paceline::cuda
