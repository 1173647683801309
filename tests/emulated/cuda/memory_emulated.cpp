// The memory of the emulated devices, and the settings of order.hpp.
//
// Each device has memory of its own: an allocation belongs to the device that was the thread's. It
// is full of 0xFF at first. What a copy calls device memory must lie within one allocation, of
// whichever device, or within memory that an emulated driver has mapped
// (tests/emulated/cuda/emulated_memory.hpp), so that a host address in its place shows. A kernel
// may be given addresses of its own device, and of those that enable_peers() has let it into.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <iterator>
#include <optional>

#include "model/kernels/cuda/runtime.hpp"
#include "tests/emulated/cuda/devices_emulated.hpp"
#include "tests/emulated/cuda/emulated_memory.hpp"
#include "tests/emulated/cuda/order.hpp"

namespace paceline::cuda {
namespace emulated {
namespace {

thread_local constinit int thread_device = 0;

/// The allocation that has the first of these bytes, if it has all of them.
std::optional<Allocation> allocation_of(const void* address, std::size_t bytes) {
    Devices& the = all_devices();
    const std::scoped_lock lock(the.mutex);
    const auto* begin = static_cast<const std::byte*>(address);
    const auto after = the.allocations.upper_bound(begin);
    if (after == the.allocations.begin()) return std::nullopt;
    const auto& [start, found] = *std::prev(after);
    const auto offset = static_cast<std::size_t>(begin - start);
    if (offset >= found.bytes || bytes > found.bytes - offset) return std::nullopt;
    return found;
}

}  // namespace

Devices& all_devices() {
    static Devices* one = new Devices;  // never destroyed: memory may be freed after main()
    return *one;
}

int current_device() {
    return thread_device;
}

void check_on_device(const void* address, std::size_t bytes, const char* call) {
    if (bytes == 0 || allocation_of(address, bytes) || EmulatedMemory::contains(address, bytes))
        return;
    throw DeviceError(
        fmt::format("{} of {} bytes: not within any device memory (emulated device)", call, bytes));
}

void check_lost(int device) {
    if (all_devices().lost != device) return;
    throw DeviceError(fmt::format("cuda:{} is lost as a test asked for (emulated device)", device));
}

void check_argument(const std::string& kernel,
                    int device,
                    const void* argument,
                    std::size_t bytes) {
    Devices& the = all_devices();
    if (the.count == 1) return;
    const auto* words = static_cast<const std::byte*>(argument);
    for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
        const void* address = nullptr;
        std::memcpy(&address, words + at, sizeof address);
        const std::optional<Allocation> found = allocation_of(address, 1);
        if (!found || found->owner == kNoDevice || found->owner == device) continue;
        const std::scoped_lock lock(the.mutex);
        if (the.reaches.contains({device, found->owner})) continue;
        throw DeviceError(
            fmt::format("{}: byte {} of its argument points into memory of cuda:{}, "
                        "which cuda:{} was not let into (emulated device)",
                        kernel, at, found->owner, device));
    }
}

void set_order(Order order) {
    all_devices().order = order;
}
Order order() {
    return all_devices().order;
}

void set_memory_limit(std::size_t bytes) {
    const std::scoped_lock lock(all_devices().mutex);
    all_devices().limit = bytes;
}

std::size_t memory_limit() {
    const std::scoped_lock lock(all_devices().mutex);
    return all_devices().limit;
}

std::size_t memory_used() {
    std::size_t all = 0;
    const std::scoped_lock lock(all_devices().mutex);
    for (const auto& [device, bytes] : all_devices().used) all += bytes;
    return all;
}

std::size_t memory_used(int device) {
    const std::scoped_lock lock(all_devices().mutex);
    return all_devices().used[device];
}

std::size_t pinned_used() {
    return all_devices().pinned;
}

void set_pinned_limit(std::size_t bytes) {
    all_devices().pinned_limit = bytes;
}

void set_devices(int count) {
    Devices& the = all_devices();
    the.count = count;
    thread_device = 0;
    const std::scoped_lock lock(the.mutex);
    the.reaches.clear();
}

int devices() {
    return all_devices().count;
}

void set_peers_possible(bool possible) {
    all_devices().peers_possible = possible;
}

bool peers_possible() {
    return all_devices().peers_possible;
}

void add_memory(const std::byte* at, std::size_t bytes) {
    const std::scoped_lock lock(all_devices().mutex);
    all_devices().allocations.emplace(at, Allocation{bytes, kNoDevice});
}

void remove_memory(const std::byte* at, std::size_t bytes) {
    static_cast<void>(bytes);
    const std::scoped_lock lock(all_devices().mutex);
    all_devices().allocations.erase(at);
}

void fail_next_launch() {
    all_devices().fail_next = true;
}

void break_at(std::uint64_t launch, std::function<bool()> asked) {
    all_devices().breaks_at = launch;
    all_devices().breaks = std::move(asked);
}

std::uint64_t launches() {
    return all_devices().launches;
}

void set_lazy(bool lazy) {
    all_devices().lazy = lazy;
}

void set_lost(int device) {
    all_devices().lost = device;
}

void set_ahead(int device) {
    all_devices().ahead = device;
}

Traffic traffic() {
    const Devices& the = all_devices();
    return {the.bytes_to_device, the.bytes_to_host, the.waits};
}

}  // namespace emulated

namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc gives
constexpr int kUnwritten = 0xFF;

std::byte* allocate_filled(std::size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
    std::memset(memory, kUnwritten, bytes);
    return static_cast<std::byte*>(memory);
}

}  // namespace

DeviceInfo use_device(int index) {
    set_device(index);
    DeviceInfo info;
    info.name = "emulated device";
    info.capability = 90;
    info.processors = 4;
    info.memory_bytes = emulated::memory_limit();
    info.free_bytes = info.memory_bytes - std::min(emulated::memory_used(index), info.memory_bytes);
    return info;
}

void set_device(int index) {
    const int count = emulated::all_devices().count;
    if (index < 0 || index >= count)
        throw DeviceError(fmt::format("cuda:{} is none of the {} emulated devices", index, count));
    emulated::thread_device = index;
}

bool enable_peers(const std::vector<int>& devices) {
    emulated::Devices& the = emulated::all_devices();
    for (const int index : devices) {
        if (index < 0 || index >= the.count)
            throw DeviceError(
                fmt::format("cuda:{} is none of the {} emulated devices", index, the.count.load()));
    }
    if (devices.size() > 1 && !the.peers_possible) return false;
    const std::scoped_lock lock(the.mutex);
    for (const int from : devices) {
        for (const int to : devices) {
            if (from != to) the.reaches.insert({from, to});
        }
    }
    return true;
}

bool DeviceMemory::allocate(std::size_t bytes, DeviceMemory& to) {
    DeviceMemory made;
    if (bytes > 0) {
        emulated::Devices& the = emulated::all_devices();
        const int owner = emulated::current_device();
        const std::scoped_lock lock(the.mutex);
        std::size_t& used = the.used[owner];
        if (used > the.limit || bytes > the.limit - used) return false;
        made.data_ = allocate_filled(bytes);
        if (made.data_ == nullptr) return false;
        made.bytes_ = bytes;
        used += bytes;
        the.allocations.emplace(made.data_, emulated::Allocation{bytes, owner});
    }
    to = std::move(made);
    return true;
}

DeviceMemory::~DeviceMemory() {
    if (data_ == nullptr) return;
    emulated::Devices& the = emulated::all_devices();
    const std::scoped_lock lock(the.mutex);
    const auto found = the.allocations.find(data_);
    the.used[found->second.owner] -= bytes_;
    the.allocations.erase(found);
    std::free(data_);
}

bool PinnedMemory::allocate(std::size_t bytes, PinnedMemory& to) {
    PinnedMemory made;
    if (bytes > 0) {
        emulated::Devices& the = emulated::all_devices();
        if (the.pinned + bytes > the.pinned_limit) return false;
        made.data_ = allocate_filled(bytes);
        if (made.data_ == nullptr) return false;
        made.bytes_ = bytes;
        the.pinned += bytes;
    }
    to = std::move(made);
    return true;
}

PinnedMemory::~PinnedMemory() {
    emulated::all_devices().pinned -= bytes_;
    std::free(data_);
}

}  // namespace paceline::cuda
