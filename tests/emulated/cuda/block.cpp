#include "tests/emulated/cuda/block.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <fmt/core.h>
#include <map>
#include <new>

#include "model/kernels/cuda/runtime.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace paceline::cuda::emulated {

thread_local constinit Thread* current_thread = nullptr;

namespace {

constexpr int kUnwritten = 0xFF;  // NaN in every floating-point type
constexpr std::byte kGuard{0xA5};
constexpr std::size_t kGuardBytes = 256;
constexpr std::align_val_t kSharedAlignment{1024};
constexpr std::uint32_t kAllLanes = 0xFFFF'FFFFU;
constexpr std::size_t kCopyBytes = 16;
std::atomic<std::uint64_t> early_launch_count{0};

std::string place(std::source_location at) {
    const std::string path = at.file_name();
    return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), at.line());
}

bool same_place(std::source_location a, std::source_location b) {
    return a.line() == b.line() && a.column() == b.column() &&
           (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

/// One of the bits that are set, the first at or above `start`, around.
int bit_from(std::uint32_t bits, std::uint32_t start) {
    const int by = static_cast<int>(start % 32);
    return (std::countr_zero(std::rotr(bits, by)) + by) % 32;
}

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ x >> 30U) * 0xBF58'476D'1CE4'E5B9U;
    x = (x ^ x >> 27U) * 0x94D0'49BB'1331'11EBU;
    return x ^ x >> 31U;
}

}  // namespace

Block::Block()
    : shared_(static_cast<std::byte*>(
          ::operator new(kSharedBytesMax + kGuardBytes, kSharedAlignment))) {}

Block::~Block() {
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(shared_, kSharedBytesMax + kGuardBytes);
#endif
    ::operator delete(shared_, kSharedAlignment);
}

void Block::run(const Grid& grid, int block_x, int block_y, const std::function<void()>& body) {
    grid_ = &grid;
    body_ = &body;
    block_x_ = block_x;
    block_y_ = block_y;
    ended_ = at_barrier_ = 0;
    waited_for_previous_ = false;
    failure_ = nullptr;
    ready_warps_ = 0;
    const auto number =
        static_cast<std::uint64_t>(block_y) * static_cast<std::uint64_t>(grid.blocks_x) +
        static_cast<std::uint64_t>(block_x);
    order_ = order();
    random_state_ = mixed(order_.seed + 0x9E37'79B9'7F4A'7C15U * (number + 1));
    prepare_shared();
    while (threads_.size() < static_cast<std::size_t>(grid.threads)) {
        threads_.push_back(std::make_unique<Thread>());
    }
    for (int index = 0; index < grid.threads; ++index) {
        Thread& thread = *threads_[static_cast<std::size_t>(index)];
        thread.index = index;
        thread.ended = false;
        thread.block = this;
        thread.waits_in = nullptr;
        thread.waited_for_previous = thread.met_others = false;
        thread.copies.clear();
        thread.group_ends.clear();
        thread.fiber.start(&Block::thread_main, &thread);
    }
    for (int warp = 0; warp < grid.threads / kLanes; ++warp) {
        warps_[warp] = {};
        ready_lanes_[warp] = 0;
        make_ready(warp, kAllLanes);
    }
    current_thread = take_ready();
    Fiber::change(outside_, current_thread->fiber);
    current_thread = nullptr;
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (ended_ < grid.threads) throw DeviceError(deadlock());
    check_shared();
    if (grid.overlaps_previous && !waited_for_previous_) {
        throw DeviceError(name() + ": was launched to overlap the kernel before it, but no " +
                          "thread calls wait_for_previous()");
    }
}

/// The stack of a thread of the block begins here.
void Block::thread_main(void* argument) {
    Thread& thread = *static_cast<Thread*>(argument);
    Block& block = *thread.block;
    try {
        (*block.body_)();
    } catch (const std::exception&) {
        block.failure_ = std::current_exception();
    }
    thread.ended = true;
    ++block.ended_;
    block.leave(thread, Fiber::Leave::ForGood);
}

void Block::leave(Thread& thread, Fiber::Leave how) {
    // After a failure no other fiber runs: the block is abandoned as it stands.
    Thread* next = failure_ == nullptr ? take_ready() : nullptr;
    if (next == &thread) return;
    current_thread = next;
    Fiber::change(thread.fiber, next != nullptr ? next->fiber : outside_, how);
}

void Block::wait(const char* operation, std::source_location at) {
    Thread& thread = *current_thread;
    thread.waits_in = operation;
    thread.waits_at = at;
    thread.met_others = true;
    leave(thread, Fiber::Leave::ForNow);
    thread.waits_in = nullptr;
}

void Block::make_ready(int warp, std::uint32_t lanes) {
    ready_lanes_[warp] |= lanes;
    ready_warps_ |= 1U << static_cast<unsigned>(warp);
}

Thread* Block::take_ready() {
    if (ready_warps_ == 0) return nullptr;
    const auto choose = [this](std::uint32_t bits) {
        if (order_.kind == Order::Kind::Forward) return std::countr_zero(bits) % kLanes;
        if (order_.kind == Order::Kind::Backward) return 31 - std::countl_zero(bits);
        return bit_from(bits, random());
    };
    const int warp = choose(ready_warps_);
    const int lane = choose(ready_lanes_[warp]);
    ready_lanes_[warp] &= ~(1U << static_cast<unsigned>(lane));
    if (ready_lanes_[warp] == 0) ready_warps_ &= ~(1U << static_cast<unsigned>(warp));
    return threads_[static_cast<std::size_t>(warp * kLanes + lane)].get();
}

std::uint32_t Block::random() {
    random_state_ += 0x9E37'79B9'7F4A'7C15U;
    return static_cast<std::uint32_t>(mixed(random_state_) >> 32U);
}

void Block::sync(std::source_location at) {
    if (at_barrier_ == 0) barrier_at_ = at;
    if (!same_place(at, barrier_at_)) {
        fail("a thread at sync_block(), where others of the block wait at " + place(barrier_at_),
             at);
    }
    ++at_barrier_;
    if (at_barrier_ < grid_->threads) {
        wait("sync_block", at);
        return;
    }
    at_barrier_ = 0;
    for (int warp = 0; warp < grid_->threads / kLanes; ++warp) make_ready(warp, kAllLanes);
    wait("sync_block", at);  // its turn comes as everyone's
}

void Block::together(const WarpOperation& operation, void* part, std::source_location at) {
    const int index = current_thread->index;
    const int number = index / kLanes;
    Warp& warp = warps_[number];
    if (warp.arrived == 0) {
        warp.operation = &operation;
        warp.at = at;
    } else if (warp.operation->perform != operation.perform || !same_place(warp.at, at)) {
        fail(std::string("a lane at ") + operation.name + "(), where others of its warp wait in " +
                 warp.operation->name + "() at " + place(warp.at),
             at);
    }
    const int lane = index % kLanes;
    warp.parts[lane] = part;
    warp.arrived |= 1U << static_cast<unsigned>(lane);
    if (warp.arrived == kAllLanes) {
        warp.arrived = 0;
        operation.perform(warp.parts);
        make_ready(number, kAllLanes);
    }
    wait(operation.name, at);
}

void Block::note_wait_for_previous() {
    waited_for_previous_ = true;
    current_thread->waited_for_previous = true;
    current_thread->met_others = false;
}

void Block::note_let_next_start(std::source_location at) {
    const Thread& thread = *current_thread;
    if (grid_->overlaps_previous && !thread.waited_for_previous)
        fail("let_next_start() before wait_for_previous()", at);
    const bool first = block_x_ == 0 && block_y_ == 0 && thread.index == 0;
    if (first && !thread.met_others) ++early_launch_count;
}

void Block::prepare_shared() {
    const std::size_t bytes = grid_->shared_bytes;
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(shared_, kSharedBytesMax + kGuardBytes);
#endif
    std::memset(shared_, kUnwritten, bytes);
    std::fill_n(shared_ + bytes, kGuardBytes, kGuard);
#ifdef __SANITIZE_ADDRESS__
    ASAN_POISON_MEMORY_REGION(shared_ + bytes, kSharedBytesMax - bytes + kGuardBytes);
#endif
}

void Block::check_shared() const {
#ifndef __SANITIZE_ADDRESS__
    const std::byte* end = shared_ + grid_->shared_bytes;
    if (std::all_of(end, end + kGuardBytes, [](std::byte b) { return b == kGuard; })) return;
    throw DeviceError(
        fmt::format("{}: wrote past its {} bytes of shared memory", name(), grid_->shared_bytes));
#endif
}

std::byte* Block::shared(std::size_t offset_bytes, std::source_location at) {
    if (offset_bytes >= grid_->shared_bytes) {
        fail(fmt::format("shared memory from byte {}, but it was given {} bytes", offset_bytes,
                         grid_->shared_bytes),
             at);
    }
    if (offset_bytes % kCopyBytes != 0) {
        fail(fmt::format("shared memory from byte {}, no multiple of 16", offset_bytes), at);
    }
    return shared_ + offset_bytes;
}

void Block::copy_async16(void* shared, const void* global, std::source_location at) {
    const auto to = reinterpret_cast<std::uintptr_t>(shared);
    const auto begin = reinterpret_cast<std::uintptr_t>(shared_);
    if (to < begin || to + kCopyBytes > begin + grid_->shared_bytes) {
        fail("copy_async16() to an address outside of its shared memory", at);
    }
    if (to % kCopyBytes != 0 || reinterpret_cast<std::uintptr_t>(global) % kCopyBytes != 0) {
        fail("copy_async16() of an unaligned address", at);
    }
    // The memory is invalid from now on: a later read is detected.
    std::memset(shared, kUnwritten, kCopyBytes);
    current_thread->copies.push_back({shared, global});
}

void Block::commit_copies() {
    current_thread->group_ends.push_back(current_thread->copies.size());
}

void Block::wait_copies(std::size_t groups_open_max) {
    auto& copies = current_thread->copies;
    auto& ends = current_thread->group_ends;
    if (ends.size() <= groups_open_max) return;
    const auto groups = static_cast<std::ptrdiff_t>(ends.size() - groups_open_max);
    const std::size_t done = ends[static_cast<std::size_t>(groups - 1)];
    for (std::size_t i = 0; i < done; ++i) std::memcpy(copies[i].to, copies[i].from, kCopyBytes);
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
    ends.erase(ends.begin(), ends.begin() + groups);
    for (std::size_t& end : ends) end -= done;
}

void Block::fail(const std::string& what, std::source_location at) const {
    throw DeviceError(
        fmt::format("{}, thread {}, {}: {}", name(), current_thread->index, place(at), what));
}

std::string Block::name() const {
    return fmt::format("{}, block ({}, {})", grid_->kernel, block_x_, block_y_);
}

std::string Block::deadlock() const {
    std::map<std::string, int> waiting;
    for (int index = 0; index < grid_->threads; ++index) {
        const Thread& thread = *threads_[static_cast<std::size_t>(index)];
        ++waiting[thread.ended ? "have ended"
                               : std::string("wait in ") + thread.waits_in + "() at " +
                                     place(thread.waits_at)];
    }
    std::string text =
        fmt::format("{}: threads wait for each other: of {}", name(), grid_->threads);
    const char* separator = " ";
    for (const auto& [where, count] : waiting) {
        text += fmt::format("{}{} {}", separator, count, where);
        separator = ", ";
    }
    return text;
}

void fail_outside_kernel() {
    throw DeviceError("a device function outside of a kernel");
}

void check_grid(const Grid& grid) {
    const auto refuse = [&grid](const std::string& what) {
        throw DeviceError(grid.kernel + " cannot be launched: " + what);
    };
    if (grid.threads < kLanes || grid.threads > kThreadsMax || grid.threads % kLanes != 0) {
        refuse(fmt::format("{} threads in a block", grid.threads));
    }
    if (grid.blocks_x < 1 || grid.blocks_y < 1 || grid.blocks_y > 65535) {
        refuse(fmt::format("{} x {} blocks", grid.blocks_x, grid.blocks_y));
    }
    if (grid.shared_bytes > kSharedBytesMax) {
        refuse(fmt::format("{} bytes of shared memory", grid.shared_bytes));
    }
}

std::uint64_t early_launches() {
    return early_launch_count;
}

void run_grid(const Grid& grid, const std::function<void()>& body) {
    // Stacks outlive the grid: the next one of this thread takes them over.
    static thread_local std::unique_ptr<Block> block;
    if (current_thread != nullptr) throw DeviceError("a kernel launched by a kernel");
    check_grid(grid);
    if (block == nullptr) block = std::make_unique<Block>();
    const int blocks = grid.blocks_x * grid.blocks_y;
    std::vector<int> numbers(static_cast<std::size_t>(blocks));
    for (int i = 0; i < blocks; ++i) numbers[static_cast<std::size_t>(i)] = i;
    const Order now = order();
    if (now.kind == Order::Kind::Backward) std::reverse(numbers.begin(), numbers.end());
    if (now.kind == Order::Kind::Shuffled) {
        std::sort(numbers.begin(), numbers.end(), [&now](int a, int b) {
            return mixed(now.seed + static_cast<std::uint64_t>(a)) <
                   mixed(now.seed + static_cast<std::uint64_t>(b));
        });
    }
    for (const int number : numbers) {
        block->run(grid, number % grid.blocks_x, number / grid.blocks_x, body);
    }
}

}  // namespace paceline::cuda::emulated
