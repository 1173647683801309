#include "model/kernels/cpu/thread_team.hpp"

#include <chrono>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "ipc/base/check.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {
namespace {

constexpr int kSpinsBetweenRuns = 20'000;  // some 0.2 ms: longer than the gap between two tokens
constexpr int kSpinsAtBarrier = 5'000;     // longer than threads of one product are apart
constexpr int kSpinsBeforeYield = 64;
constexpr int kSpinsInACrowd = 2'000;    // to meet a thread that runs on another core just now
constexpr int kYieldsBetweenRuns = 300;  // about 0.1 ms on an idle core
constexpr int kYieldsAtBarrier = 5'000;  // the others are at work, or about to be woken
constexpr std::chrono::microseconds kLongYield{1500};
constexpr int kCrowdedWaits = 300;  // about a token

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    static_assert(sizeof(word) == sizeof(std::uint32_t), "the kernel reads 32 bits");
    return ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

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
    run_count_.fetch_add(1);
    wake(run_count_);
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
    run_count_.fetch_add(1);
    wake(run_count_);
    function(context, 0);
    barrier();  // no thread is inside `work` any more when run() returns
}

void ThreadTeam::worker(int thread, int core) {
    if (core >= 0) (void)pin_to(core);
    std::uint32_t seen = 0;
    while (true) {
        // Acquire pairs with the release in run_erased() and in the destructor.
        wait_while(run_count_, seen, {kSpinsBetweenRuns, kYieldsBetweenRuns});
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
        barrier_phase_.store(phase + 1);
        wake(barrier_phase_);
        return;
    }
    // Acquire pairs with the release of the last one in.
    wait_while(barrier_phase_, phase, {kSpinsAtBarrier, kYieldsAtBarrier});
}

void ThreadTeam::wait_while(std::atomic<std::uint32_t>& word,
                            std::uint32_t value,
                            const Patience& patience) {
    const bool crowded = crowded_.load(std::memory_order_relaxed) > 0;
    const int spins = may_spin_ ? patience.spins : crowded ? kSpinsInACrowd : kSpinsBeforeYield;
    for (int i = 0; i < spins; ++i) {
        if (word.load(std::memory_order_acquire) != value) return;
        cpu_relax();
    }
    for (int i = 0; !may_spin_ && i < patience.yields && yield(); ++i) {
        if (word.load(std::memory_order_acquire) != value) return;
    }
    // Sequentially consistent, as the store that is waited for and the load in wake(): either that load
    // sees this sleeper, or the kernel sees the new value and does not sleep.
    sleepers_.fetch_add(1);
    while (word.load() == value) futex(word, FUTEX_WAIT_PRIVATE, value);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadTeam::wake(std::atomic<std::uint32_t>& word) {
    if (sleepers_.load() != 0) futex(word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

/// False: the core is busy, sleep instead.
bool ThreadTeam::yield() {
    if (crowded_.load(std::memory_order_relaxed) > 0) {
        crowded_.fetch_sub(1, std::memory_order_relaxed);
        return false;
    }
    const auto before = std::chrono::steady_clock::now();
    sched_yield();
    if (std::chrono::steady_clock::now() - before > kLongYield)
        crowded_.store(kCrowdedWaits, std::memory_order_relaxed);
    return true;
}

}  // namespace paceline
