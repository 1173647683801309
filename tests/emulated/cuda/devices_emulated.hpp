// What the files of the emulated runtime share: the devices, their memory, who reaches whom.
//
// Included by memory_emulated.cpp and runtime_emulated.cpp alone. Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/emulated/cuda/order.hpp"

namespace paceline::cuda::emulated {

/// As the owner of memory that others made: every device reaches it.
inline constexpr int kNoDevice = -1;

struct Allocation {
    std::size_t bytes = 0;
    int owner = kNoDevice;
};

/// The devices of the process, and what tests have set about them.
struct Devices {
    std::atomic<int> count{1};
    std::mutex mutex;  // of the memory and of who reaches whom
    std::map<const std::byte*, Allocation, std::less<>> allocations;
    std::map<int, std::size_t> used;        // of each device
    std::size_t limit = kMemoryDefault;     // of each
    std::set<std::pair<int, int>> reaches;  // (from, to): enable_peers()
    std::atomic<bool> peers_possible{true};
    std::atomic<std::size_t> pinned{0};
    std::atomic<std::size_t> pinned_limit{std::numeric_limits<std::size_t>::max()};
    Order order;
    std::atomic<bool> fail_next{false};
    std::atomic<std::uint64_t> launches{0};
    std::uint64_t breaks_at = 0;  // a launch; 0: never
    std::function<bool()> breaks;
    std::atomic<bool> broken{false};
    std::atomic<int> lost{kNoDevice};  // its kernels do nothing
    std::atomic<bool> lazy{false};
    std::atomic<int> ahead{kNoDevice};  // the device whose streams run first
    std::atomic<std::uint64_t> bytes_to_device{0};
    std::atomic<std::uint64_t> bytes_to_host{0};
    std::atomic<std::uint64_t> waits{0};
};

[[nodiscard]] Devices& all_devices();

/// The calling thread's device: set_device().
[[nodiscard]] int current_device();

/// Throws DeviceError if these bytes do not lie within one allocation of any device, or within
/// memory that an emulated driver has mapped. `call` says who asks.
void check_on_device(const void* address, std::size_t bytes, const char* call);

/// Throws DeviceError if this device is lost: set_lost().
void check_lost(int device);

/// Throws DeviceError if a word of a kernel's argument points into memory of another device that
/// `device` was not let into.
void check_argument(const std::string& kernel, int device, const void* argument, std::size_t bytes);

}  // namespace paceline::cuda::emulated
