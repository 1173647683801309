// The emulator: runs the blocks of a grid one after another, the threads of a block as fibers.
//
// A thread runs until it must wait for others, then the next one does, in the order of order.hpp.
// What a warp does together (a shuffle, a product) is done by the last of its lanes to arrive, for
// all of them. Shared memory is full of 0xFF, NaN in every type, when a block begins; an
// asynchronous copy leaves 0xFF at once, and its bytes only at the wait that covers it.
//
// Throws DeviceError, naming kernel and block, for: a grid that no device takes, threads that wait
// for each other at different places or for one that has ended, an address outside of what the
// kernel asked for, a write past its shared memory, let_next_start() before wait_for_previous(). A
// std::exception of a kernel goes through.
//
// Threads: any number of threads may run grids at the same time, each its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "tests/emulated/cuda/fiber.hpp"
#include "tests/emulated/cuda/order.hpp"

namespace paceline::cuda::emulated {

inline constexpr int kLanes = 32;
inline constexpr int kThreadsMax = 1024;
inline constexpr int kWarpsMax = kThreadsMax / kLanes;
inline constexpr std::size_t kSharedBytesMax = 227 * 1024;

struct Grid {
    std::string kernel;  // what errors call it
    int blocks_x = 1;
    int blocks_y = 1;
    int threads = kLanes;
    std::size_t shared_bytes = 0;
    bool overlaps_previous = false;
};

/// Throws DeviceError if no device would take it.
void check_grid(const Grid& grid);

/// Runs all blocks; `body` is the kernel with its argument, called by every thread.
void run_grid(const Grid& grid, const std::function<void()>& body);

/// What the lanes of a warp do together: `perform` gets the part that each lane deposited.
struct WarpOperation {
    const char* name;
    void (*perform)(void* const* parts);
};

class Block;

/// A thread of a block.
struct Thread {
    int index = 0;
    bool ended = false;
    Block* block = nullptr;
    const char* waits_in = nullptr;  // the operation, while it waits
    std::source_location waits_at;
    bool waited_for_previous = false;
    bool met_others = false;  // at a barrier or in a warp operation, since wait_for_previous()
    Fiber fiber;

    struct Copy {
        void* to;
        const void* from;
    };
    std::vector<Copy> copies;             // not yet done, oldest first
    std::vector<std::size_t> group_ends;  // of those, one for each group that is closed
};

class Block {
public:
    Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block();

    void run(const Grid& grid, int block_x, int block_y, const std::function<void()>& body);

    // For the threads, that is, for device_emulated.hpp.
    [[nodiscard]] const Grid& grid() const { return *grid_; }
    [[nodiscard]] int block_x() const { return block_x_; }
    [[nodiscard]] int block_y() const { return block_y_; }
    [[nodiscard]] std::byte* shared(std::size_t offset_bytes, std::source_location at);
    void sync(std::source_location at);
    void together(const WarpOperation& operation, void* part, std::source_location at);
    void copy_async16(void* shared, const void* global, std::source_location at);
    void commit_copies();
    void wait_copies(std::size_t groups_open_max);
    void note_wait_for_previous();
    void note_let_next_start(std::source_location at);
    [[noreturn]] void fail(const std::string& what, std::source_location at) const;

private:
    struct Warp {
        const WarpOperation* operation = nullptr;
        std::source_location at;
        std::uint32_t arrived = 0;  // one bit per lane
        void* parts[kLanes] = {};
    };

    static void thread_main(void* thread);
    void prepare_shared();
    void check_shared() const;
    void make_ready(int warp, std::uint32_t lanes);
    [[nodiscard]] Thread* take_ready();
    void leave(Thread& thread, Fiber::Leave how);
    void wait(const char* operation, std::source_location at);
    [[nodiscard]] std::string name() const;
    [[nodiscard]] std::string deadlock() const;
    [[nodiscard]] std::uint32_t random();

    const Grid* grid_ = nullptr;
    Order order_;
    const std::function<void()>* body_ = nullptr;
    int block_x_ = 0;
    int block_y_ = 0;
    int ended_ = 0;
    int at_barrier_ = 0;
    std::source_location barrier_at_;
    bool waited_for_previous_ = false;
    std::exception_ptr failure_;
    Fiber outside_;                                 // of the caller of run()
    std::vector<std::unique_ptr<Thread>> threads_;  // grows, stacks are kept
    Warp warps_[kWarpsMax];
    std::uint32_t ready_warps_ = 0;  // that have a lane that can run
    std::uint32_t ready_lanes_[kWarpsMax] = {};
    std::uint64_t random_state_ = 0;
    std::byte* shared_ = nullptr;  // kSharedBytesMax and a guard zone
};

/// The thread that runs now. Outside of a kernel nullptr.
extern thread_local constinit Thread* current_thread;

[[noreturn]] void fail_outside_kernel();

/// Throws DeviceError outside of a kernel.
[[nodiscard]] inline Thread& this_thread() {
    if (current_thread == nullptr) [[unlikely]]
        fail_outside_kernel();
    return *current_thread;
}

}  // namespace paceline::cuda::emulated
