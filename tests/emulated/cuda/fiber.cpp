#include "tests/emulated/cuda/fiber.hpp"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace paceline::cuda::emulated {
namespace {

constexpr std::size_t kPageBytes = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 256 * 1024;  // instrumented frames are several times as large
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif

// Who leaves and who arrives: read by the one that arrives.
thread_local Fiber* left = nullptr;
thread_local Fiber* entered = nullptr;

}  // namespace

#ifndef PACELINE_FIBER_UCONTEXT
// Saves what a function must preserve on the stack that it leaves, then takes it from the other.
// Rounding modes are left alone: kernels do not change them.
extern "C" void paceline_change_stack(void** left_at, void* enter_at);
asm(R"(
.text
.globl paceline_change_stack
.hidden paceline_change_stack
.type paceline_change_stack, @function
paceline_change_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size paceline_change_stack, . - paceline_change_stack
)");
#endif

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
    if (mapped_ != nullptr && tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
#endif
    if (mapped_ != nullptr) (void)munmap(mapped_, kPageBytes + kStackBytes);
}

void Fiber::allocate_stack() {
    void* memory = mmap(nullptr, kPageBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<std::byte*>(memory);
    (void)mprotect(mapped_, kPageBytes, PROT_NONE);
    stack_ = mapped_ + kPageBytes;
    stack_bytes_ = kStackBytes;
}

/// Frames of a run before may have been abandoned; the sanitizers must forget them.
void Fiber::before_start() {
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(stack_, stack_bytes_);
    asan_frames_ = nullptr;
#endif
#ifdef __SANITIZE_THREAD__
    if (tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
    tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

void Fiber::start(void (*entry)(void*), void* argument) {
    if (mapped_ == nullptr) allocate_stack();
    before_start();
    entry_ = entry;
    argument_ = argument;
#ifdef PACELINE_FIBER_UCONTEXT
    (void)getcontext(&context_);
    context_.uc_stack.ss_sp = mapped_ + kPageBytes;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, &Fiber::begin, 0);
#else
    // As if begin() had been called from nowhere: six registers, where to go, and no way back.
    constexpr std::size_t kWords = 8;
    auto* top = reinterpret_cast<std::uintptr_t*>(mapped_ + kPageBytes + kStackBytes) - kWords;
    for (std::size_t word = 0; word < kWords; ++word) top[word] = 0;
    top[kWords - 2] = reinterpret_cast<std::uintptr_t>(&Fiber::begin);
    stack_pointer_ = top;
#endif
}

void Fiber::begin() {
    arrive(*entered);
    entered->entry_(entered->argument_);
    std::abort();  // an entry ends by changing to another fiber for good
}

void Fiber::arrive([[maybe_unused]] Fiber& to) {
#ifdef __SANITIZE_ADDRESS__
    const void* stack = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(to.asan_frames_, &stack, &bytes);
    if (left->mapped_ == nullptr) {  // the thread itself: only now it is known where it lives
        left->stack_ = stack;
        left->stack_bytes_ = bytes;
    }
#endif
}

void Fiber::change(Fiber& from, Fiber& to, [[maybe_unused]] Leave leave) {
    left = &from;
    entered = &to;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(leave == Leave::ForGood ? nullptr : &from.asan_frames_,
                                   to.stack_, to.stack_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
    if (from.mapped_ == nullptr) from.tsan_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#endif
#ifdef PACELINE_FIBER_UCONTEXT
    (void)swapcontext(&from.context_, &to.context_);
#else
    paceline_change_stack(&from.stack_pointer_, to.stack_pointer_);
#endif
    arrive(from);
}

}  // namespace paceline::cuda::emulated
