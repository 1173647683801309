// runtime.hpp where a device is host memory and a stream does everything at once.
//
// Or piece by piece, where a test asks for it (order.hpp: set_lazy).
//
// Device memory is full of 0xFF when it is allocated. What a copy calls device memory must lie
// within one allocation of it, or within memory that an emulated driver has mapped
// (tests/emulated/cuda/emulated_memory.hpp), so that a host address in its place shows.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <deque>
#include <fmt/core.h>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/runtime.hpp"
#include "tests/emulated/cuda/emulated_memory.hpp"
#include "tests/emulated/cuda/order.hpp"

namespace paceline::cuda {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc gives
constexpr int kUnwritten = 0xFF;

using Clock = std::chrono::steady_clock;

/// The devices of the process: what they have is not told apart.
struct Device {
    std::atomic<int> count{1};
    std::mutex mutex;
    std::map<const std::byte*, std::size_t> allocations;  // address to bytes
    std::size_t used = 0;
    std::atomic<std::size_t> pinned{0};
    std::atomic<std::size_t> pinned_limit{std::numeric_limits<std::size_t>::max()};
    std::size_t limit = emulated::kMemoryDefault;
    emulated::Order order;
    std::atomic<bool> fail_next{false};
    std::atomic<std::uint64_t> launches{0};
    std::uint64_t breaks_at = 0;  // a launch; 0: never
    std::function<bool()> breaks;
    std::atomic<bool> broken{false};
    std::atomic<bool> lazy{false};
    std::atomic<std::uint64_t> bytes_to_device{0};
    std::atomic<std::uint64_t> bytes_to_host{0};
    std::atomic<std::uint64_t> waits{0};
};

Device& device() {
    static Device* one = new Device;  // never destroyed: memory may be freed after main()
    return *one;
}

std::byte* allocate_filled(std::size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
    std::memset(memory, kUnwritten, bytes);
    return static_cast<std::byte*>(memory);
}

bool is_allocated(const void* address, std::size_t bytes) {
    Device& the = device();
    const std::scoped_lock lock(the.mutex);
    const auto* begin = static_cast<const std::byte*>(address);
    const auto after = the.allocations.upper_bound(begin);
    if (after == the.allocations.begin()) return false;
    const auto& [start, size] = *std::prev(after);
    const auto offset = static_cast<std::size_t>(begin - start);
    return offset < size && bytes <= size - offset;
}

void check_on_device(const void* address, std::size_t bytes, const char* call) {
    if (bytes == 0 || is_allocated(address, bytes) || EmulatedMemory::contains(address, bytes))
        return;
    throw DeviceError(
        fmt::format("{} of {} bytes: not within any device memory (emulated device)", call, bytes));
}

}  // namespace

namespace emulated {

void set_order(Order order) {
    device().order = order;
}
Order order() {
    return device().order;
}

void set_memory_limit(std::size_t bytes) {
    const std::scoped_lock lock(device().mutex);
    device().limit = bytes;
}

std::size_t memory_limit() {
    const std::scoped_lock lock(device().mutex);
    return device().limit;
}

std::size_t memory_used() {
    const std::scoped_lock lock(device().mutex);
    return device().used;
}

std::size_t pinned_used() {
    return device().pinned;
}

void set_pinned_limit(std::size_t bytes) {
    device().pinned_limit = bytes;
}

void set_devices(int count) {
    device().count = count;
}

int devices() {
    return device().count;
}

void add_memory(const std::byte* at, std::size_t bytes) {
    const std::scoped_lock lock(device().mutex);
    device().allocations.emplace(at, bytes);
}

void remove_memory(const std::byte* at, std::size_t bytes) {
    static_cast<void>(bytes);
    const std::scoped_lock lock(device().mutex);
    device().allocations.erase(at);
}

void fail_next_launch() {
    device().fail_next = true;
}

void break_at(std::uint64_t launch, std::function<bool()> asked) {
    device().breaks_at = launch;
    device().breaks = std::move(asked);
}

std::uint64_t launches() {
    return device().launches;
}

void set_lazy(bool lazy) {
    device().lazy = lazy;
}

Traffic traffic() {
    return {device().bytes_to_device, device().bytes_to_host, device().waits};
}

std::string kernel_name(const std::type_info& argument) {
    int status = 0;
    char* text = abi::__cxa_demangle(argument.name(), nullptr, nullptr, &status);
    std::string name = status == 0 ? text : argument.name();
    std::free(text);
    return "kernel(" + name + ")";
}

}  // namespace emulated

DeviceInfo use_device(int index) {
    set_device(index);
    DeviceInfo info;
    info.name = "emulated device";
    info.capability = 90;
    info.processors = 4;
    info.memory_bytes = emulated::memory_limit();
    info.free_bytes = info.memory_bytes - std::min(emulated::memory_used(), info.memory_bytes);
    return info;
}

void set_device(int index) {
    const int count = device().count;
    if (index >= 0 && index < count) return;
    throw DeviceError(fmt::format("cuda:{} is none of the {} emulated devices", index, count));
}

bool DeviceMemory::allocate(std::size_t bytes, DeviceMemory& to) {
    DeviceMemory made;
    if (bytes > 0) {
        Device& the = device();
        const std::scoped_lock lock(the.mutex);
        if (the.used > the.limit || bytes > the.limit - the.used) return false;
        made.data_ = allocate_filled(bytes);
        if (made.data_ == nullptr) return false;
        made.bytes_ = bytes;
        the.used += bytes;
        the.allocations.emplace(made.data_, bytes);
    }
    to = std::move(made);
    return true;
}

DeviceMemory::~DeviceMemory() {
    if (data_ == nullptr) return;
    Device& the = device();
    const std::scoped_lock lock(the.mutex);
    the.used -= bytes_;
    the.allocations.erase(data_);
    std::free(data_);
}

bool PinnedMemory::allocate(std::size_t bytes, PinnedMemory& to) {
    PinnedMemory made;
    if (bytes > 0) {
        if (device().pinned + bytes > device().pinned_limit) return false;
        made.data_ = allocate_filled(bytes);
        if (made.data_ == nullptr) return false;
        made.bytes_ = bytes;
        device().pinned += bytes;
    }
    to = std::move(made);
    return true;
}

PinnedMemory::~PinnedMemory() {
    device().pinned -= bytes_;
    std::free(data_);
}

using Step = std::function<void()>;

struct Graph::Recording {
    std::vector<Step> steps;
};

struct Stream::Handle {
    std::vector<Step>* records = nullptr;  // while it records
    std::deque<Step> waiting;              // of a lazy device

    void submit(Step step) {
        if (records != nullptr) {
            records->push_back(std::move(step));
        } else if (device().lazy) {
            waiting.push_back(std::move(step));
        } else {
            step();
        }
    }
    void do_one() {
        const Step step = std::move(waiting.front());
        waiting.pop_front();  // also if it throws
        step();
    }
};

Stream::Stream() : handle_(std::make_unique<Handle>()) {}
Stream::~Stream() = default;

void Stream::to_device(void* device_address, const void* host, std::size_t bytes) {
    to_device(device_address, host, {1, bytes, bytes});
}

void Stream::to_host(void* host, const void* device_address, std::size_t bytes) {
    to_host(host, device_address, {1, bytes, bytes});
}

namespace {

void check_pieces(const void* address, const Pieces& pieces, const char* call) {
    if (pieces.count == 0 || pieces.bytes == 0) return;
    if (pieces.count > 1 && pieces.stride < pieces.bytes)
        throw DeviceError(std::string(call) + ": pieces overlap (emulated device)");
    check_on_device(address, (pieces.count - 1) * pieces.stride + pieces.bytes, call);
}

void part(void* apart, const void* together, const Pieces& pieces) {
    auto* to = static_cast<std::byte*>(apart);
    const auto* from = static_cast<const std::byte*>(together);
    for (std::size_t i = 0; pieces.bytes > 0 && i < pieces.count; ++i)
        std::memcpy(to + i * pieces.stride, from + i * pieces.bytes, pieces.bytes);
}

void join(void* together, const void* apart, const Pieces& pieces) {
    auto* to = static_cast<std::byte*>(together);
    const auto* from = static_cast<const std::byte*>(apart);
    for (std::size_t i = 0; pieces.bytes > 0 && i < pieces.count; ++i)
        std::memcpy(to + i * pieces.bytes, from + i * pieces.stride, pieces.bytes);
}

}  // namespace

void Stream::to_device(void* device_address, const void* host, const Pieces& pieces) {
    check_pieces(device_address, pieces, "to_device()");
    handle_->submit([=] {
        part(device_address, host, pieces);
        device().bytes_to_device += pieces.count * pieces.bytes;
    });
}

void Stream::to_host(void* host, const void* device_address, const Pieces& pieces) {
    check_pieces(device_address, pieces, "to_host()");
    handle_->submit([=] {
        join(host, device_address, pieces);
        device().bytes_to_host += pieces.count * pieces.bytes;
    });
}

void Stream::join_on_device(void* together, const void* apart, const Pieces& pieces) {
    check_on_device(together, pieces.count * pieces.bytes, "join_on_device() to");
    check_pieces(apart, pieces, "join_on_device() from");
    handle_->submit([=] { join(together, apart, pieces); });
}

void Stream::part_on_device(void* apart, const void* together, const Pieces& pieces) {
    check_pieces(apart, pieces, "part_on_device() to");
    check_on_device(together, pieces.count * pieces.bytes, "part_on_device() from");
    handle_->submit([=] { part(apart, together, pieces); });
}

void Stream::on_device(void* to, const void* from, std::size_t bytes) {
    check_on_device(to, bytes, "on_device() to");
    check_on_device(from, bytes, "on_device() from");
    const auto* source = static_cast<const std::byte*>(from);
    const auto* target = static_cast<const std::byte*>(to);
    const std::less<> before;
    if (bytes > 0 && before(source, target + bytes) && before(target, source + bytes)) {
        throw DeviceError("on_device(): from and to overlap (emulated device)");
    }
    handle_->submit([=] {
        if (bytes > 0) std::memcpy(to, from, bytes);
    });
}

void Stream::fill(void* device_address, std::uint8_t value, std::size_t bytes) {
    check_on_device(device_address, bytes, "fill()");
    handle_->submit([=] {
        if (bytes > 0) std::memset(device_address, value, bytes);
    });
}

void Stream::finish() {
    if (handle_->records != nullptr) throw DeviceError("finish() of a stream that records");
    ++device().waits;
    while (!handle_->waiting.empty()) handle_->do_one();
}

bool Stream::idle() {
    if (handle_->records != nullptr) throw DeviceError("idle() of a stream that records");
    if (handle_->waiting.empty()) return true;
    handle_->do_one();
    return false;
}

Graph Stream::record(const std::function<void()>& work) {
    if (handle_->records != nullptr) throw DeviceError("record() within record()");
    Graph graph;
    graph.recording_ = std::make_unique<Graph::Recording>();
    struct Recorder {  // also ends the recording if `work` throws
        Handle& handle;
        ~Recorder() { handle.records = nullptr; }
    };
    const Recorder recorder{*handle_};
    handle_->records = &graph.recording_->steps;
    work();
    return graph;
}

Graph::Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(Stream& stream) const {
    if (empty()) throw DeviceError("launch() of an empty graph");
    if (stream.handle().records != nullptr) throw DeviceError("a graph launched while recording");
    for (const Step& step : recording_->steps) stream.handle().submit(step);
}

struct Event::Handle {
    // Shared with the steps that record it: a graph may outlive its events.
    std::shared_ptr<std::optional<Clock::time_point>> at =
        std::make_shared<std::optional<Clock::time_point>>();
};

Event::Event() : handle_(std::make_unique<Handle>()) {}
Event::~Event() = default;

void Event::record(Stream& stream) {
    stream.handle().submit([at = handle_->at] { *at = Clock::now(); });
}

bool Event::reached() const {
    return handle_->at->has_value();
}

double Event::seconds_between(const Event& from, const Event& to) {
    if (!from.reached() || !to.reached()) {
        throw DeviceError("seconds_between() of an event that was not reached");
    }
    return std::chrono::duration<double>(**to.handle_->at - **from.handle_->at).count();
}

namespace emulated {

void submit(Stream& stream, Grid grid, std::function<void()> body) {
    check_grid(grid);
    stream.handle().submit([grid = std::move(grid), body = std::move(body)] {
        if (device().fail_next.exchange(false)) {
            throw DeviceError(grid.kernel + ": failed as a test asked for (emulated device)");
        }
        const std::uint64_t number = ++device().launches;
        if (number == device().breaks_at && device().breaks()) device().broken = true;
        if (device().broken) {
            throw DeviceError(grid.kernel + ": the device is broken as a test asked for " +
                              "(emulated device)");
        }
        run_grid(grid, body);
    });
}

}  // namespace emulated
}  // namespace paceline::cuda
