#include "model/kernels/cpu/thread_team.hpp"

#include <pthread.h>

#include "ipc/base/check.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {
namespace {

constexpr int kSpinsBeforeSleep = 20'000;  // some 0.2 ms: longer than the gap between two tokens
constexpr int kSpinsBeforeYield = 64;
constexpr int kYieldsBeforeSleep = 300;  // about 0.1 ms on an idle core

bool pin_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(core), &set);
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

void cpu_relax() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

}  // namespace

ThreadTeam::ThreadTeam(int threads, std::vector<int> cores, int usable_cores)
    : size_{threads}, may_spin_{usable_cores >= threads} {
    PACE_CHECK(threads >= 1, "a team has at least the caller");
    PACE_CHECK(cores.empty() || static_cast<int>(cores.size()) == threads, "one core per thread");
    if (!cores.empty()) {
        (void)pthread_getaffinity_np(pthread_self(), sizeof(caller_affinity_), &caller_affinity_);
        caller_pinned_ = pin_to(cores[0]);
    }
    threads_.reserve(static_cast<std::size_t>(threads) - 1);
    for (int thread = 1; thread < threads; ++thread) {
        const int core = cores.empty() ? -1 : cores[static_cast<std::size_t>(thread)];
        threads_.emplace_back([this, thread, core] { worker(thread, core); });
    }
}

ThreadTeam::~ThreadTeam() {
    // Release pairs with the workers' acquire of run_count_: they see stop_.
    stop_.store(true, std::memory_order_relaxed);
    run_count_.fetch_add(1, std::memory_order_release);
    run_count_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    if (caller_pinned_) {
        (void)pthread_setaffinity_np(pthread_self(), sizeof(caller_affinity_), &caller_affinity_);
    }
}

void ThreadTeam::run_erased(Function function, void* context) {
    if (size_ == 1) {
        function(context, 0);
        return;
    }
    function_ = function;
    context_ = context;
    // Release publishes function_ and context_; pairs with the acquire in worker().
    run_count_.fetch_add(1, std::memory_order_release);
    run_count_.notify_all();
    function(context, 0);
    barrier();  // no thread is inside `work` any more when run() returns
}

void ThreadTeam::worker(int thread, int core) {
    if (core >= 0) (void)pin_to(core);
    std::uint32_t seen = 0;
    while (true) {
        int spins = 0;
        // Acquire pairs with the release in run_erased() and in the destructor.
        while (run_count_.load(std::memory_order_acquire) == seen) {
            if (++spins > (may_spin_ ? kSpinsBeforeSleep : kYieldsBeforeSleep)) {
                run_count_.wait(seen, std::memory_order_acquire);
            } else if (may_spin_) {
                cpu_relax();
            } else {
                sched_yield();
            }
        }
        ++seen;
        if (stop_.load(std::memory_order_relaxed)) return;
        function_(context_, thread);
        barrier();
    }
}

void ThreadTeam::barrier() {
    if (size_ == 1) return;
    const std::uint32_t phase =
        barrier_phase_.load(std::memory_order_relaxed);  // changes only when we all arrived
    // Acquire-release: the last one in sees what all others wrote before they arrived.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);  // ordered by the release below
        barrier_phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    int spins = 0;
    // Acquire pairs with the release of the last one in.
    while (barrier_phase_.load(std::memory_order_acquire) == phase) pause(spins);
}

void ThreadTeam::pause(int& spins) const {
    if (may_spin_ || ++spins < kSpinsBeforeYield) {
        cpu_relax();
        return;
    }
    // The thread that is waited for, or another process, may need this very core.
    sched_yield();
}

}  // namespace paceline
