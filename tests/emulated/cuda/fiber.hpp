// Fiber: a function with a stack of its own, left and entered again at will.
//
// The emulator makes one of every thread of a block. On x86-64 a change of fibers is twenty
// instructions and no system call; elsewhere (or with PACELINE_FIBER_UCONTEXT) it is ucontext.
// AddressSanitizer and ThreadSanitizer are told of every change.
//
// A fiber may be abandoned anywhere: start() begins anew on the same stack. What it holds then is
// not destroyed. A stack that overflows hits a page without access.
//
// Threads: a fiber stays on the thread that started it. An object must not move once started.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(PACELINE_FIBER_UCONTEXT)
#define PACELINE_FIBER_UCONTEXT
#endif
#ifdef PACELINE_FIBER_UCONTEXT
#include <ucontext.h>
#endif

namespace paceline::cuda::emulated {

class Fiber {
public:
    enum class Leave { ForNow, ForGood };

    Fiber() = default;
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber();

    /// The next change to this fiber calls `entry(argument)`, which must not return.
    void start(void (*entry)(void*), void* argument);

    /// Leaves `from`, which runs, and goes on in `to`. A fiber that was not started stands for the
    /// thread itself. Returns when something changes back to `from`.
    static void change(Fiber& from, Fiber& to, Leave leave = Leave::ForNow);

private:
    [[noreturn]] static void begin();
    void allocate_stack();
    void before_start();
    static void arrive(Fiber& to);

    void (*entry_)(void*) = nullptr;
    void* argument_ = nullptr;
    std::byte* mapped_ = nullptr;  // the page without access, then the stack
    const void* stack_ = nullptr;  // its lowest address
    std::size_t stack_bytes_ = 0;
#ifdef PACELINE_FIBER_UCONTEXT
    ucontext_t context_{};
#else
    void* stack_pointer_ = nullptr;
#endif
    void* asan_frames_ = nullptr;
    void* tsan_fiber_ = nullptr;
};

}  // namespace paceline::cuda::emulated
