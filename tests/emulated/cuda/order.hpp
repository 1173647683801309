// What a test can set about the emulated device: order, pace, memory, faults; and what it counts.
//
// A kernel that lacks a barrier gives right results in some orders of its threads and wrong ones in
// others. set_order() chooses one: each runs a warp as far as it can come before another one moves,
// and so opens the widest gap there can be between two threads that no barrier holds together.
//
// Threads: settings hold for the whole process; set them while no kernel runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace paceline::cuda::emulated {

struct Order {
    enum class Kind : std::uint8_t {
        Forward,   // the lowest warp and lane that can run, blocks from the first
        Backward,  // the highest, blocks from the last
        Shuffled,  // by `seed`, the same on every machine
    };
    Kind kind = Kind::Forward;
    std::uint64_t seed = 0;
};

void set_order(Order order);
[[nodiscard]] Order order();

inline constexpr std::size_t kMemoryDefault = std::size_t{8} << 30U;

/// How much memory each device has; what is allocated stays so.
void set_memory_limit(std::size_t bytes);
[[nodiscard]] std::size_t memory_limit();
/// Of all devices, and of one.
[[nodiscard]] std::size_t memory_used();
[[nodiscard]] std::size_t memory_used(int device);
/// Host memory that is pinned, and how much of it there may be: at first any.
[[nodiscard]] std::size_t pinned_used();
void set_pinned_limit(std::size_t bytes);

/// How many devices there are: 1 at first. Each has memory of its own; they share all settings. No
/// device is let into another's memory any more, and the calling thread is back at cuda:0.
void set_devices(int count);
[[nodiscard]] int devices();
/// Whether enable_peers() can let devices into each other's memory: at first it can.
void set_peers_possible(bool possible);
[[nodiscard]] bool peers_possible();

/// Memory that others made, and that counts as device memory while it is there: what another
/// process exported, for instance. It is not part of memory_used().
void add_memory(const std::byte* at, std::size_t bytes);
void remove_memory(const std::byte* at, std::size_t bytes);

/// The next kernel that would run throws DeviceError instead, and runs not.
void fail_next_launch();

/// The kernel of that number, counted from 1 as launches() does, throws DeviceError if `asked` then
/// says so, and every one after it too: a GPU that has failed gives no way back.
void break_at(std::uint64_t launch, std::function<bool()> asked);

/// What blas_problem() says from now on; empty, as at the beginning: there is a cuBLAS.
void set_blas_problem(const std::string& what);

/// How many kernels have run (a graph counts each of its own).
[[nodiscard]] std::uint64_t launches();

/// How many of these let the next kernel start right after their wait_for_previous(): before the
/// first barrier or warp operation of their first thread.
[[nodiscard]] std::uint64_t early_launches();

/// Whether streams keep what they are given, as a GPU does: each idle() does one piece of it,
/// finish() all that is left. What a copy reads on the host has to stay there until then. Usually
/// everything is done at once. For streams that have nothing left to do.
void set_lazy(bool lazy);

/// A device that has failed, as a GPU does: its kernels do nothing from now on, what waits for its
/// streams goes on, and only a look at one of its own streams throws. -1, as at first: none.
void set_lost(int device);

/// The streams of this device run as far as they can before any other of a lazy device moves, and
/// so does its part of a recording that is launched; -1, as at first: of none. What they do not
/// wait for is then not there yet. For one thread that uses the devices.
void set_ahead(int device);

/// What has crossed, and how often a thread waited, since the process began.
struct Traffic {
    std::uint64_t bytes_to_device = 0;
    std::uint64_t bytes_to_host = 0;
    std::uint64_t waits = 0;  // finish(), of any stream
};
[[nodiscard]] Traffic traffic();

}  // namespace paceline::cuda::emulated
