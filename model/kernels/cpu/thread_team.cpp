#include "model/kernels/cpu/thread_team.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <linux/futex.h>
#include <optional>
#include <pthread.h>
#include <span>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

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
constexpr int kSpinsToMeet = 2'000;      // a thread that runs on another core just now
constexpr int kYieldsBetweenRuns = 300;  // about 0.1 ms on an idle core
constexpr int kYieldsAtBarrier = 5'000;  // the others are at work, or about to be woken
constexpr std::chrono::microseconds kLongYield{1500};
constexpr int kCrowdedWaits = 300;  // about a token
// A draft that reads a prompt beside the target takes two of them.
constexpr int kLooksOnSharedCores = 4;

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    static_assert(sizeof(word) == sizeof(std::uint32_t), "the kernel reads 32 bits");
    return ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

/// A thread of this process may run on these cores alone.
bool allow(pid_t thread, std::span<const int> cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(static_cast<unsigned>(core), &set);
    return sched_setaffinity(thread, sizeof(set), &set) == 0;
}

pid_t own_thread_id() {
    return static_cast<pid_t>(::syscall(SYS_gettid));
}

/// How long a thread was ready to run since its begin, and had no core; nothing where the kernel
/// does not say.
std::optional<std::chrono::nanoseconds> delay_of(pid_t thread) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", static_cast<int>(thread));
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    char text[96];
    const ssize_t length = ::read(file, text, sizeof text - 1);
    ::close(file);
    if (length <= 0) return std::nullopt;
    text[length] = 0;
    unsigned long long ran = 0;
    unsigned long long delayed = 0;
    if (std::sscanf(text, "%llu %llu", &ran, &delayed) != 2) return std::nullopt;
    return std::chrono::nanoseconds{delayed};
}

void cpu_relax() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

}  // namespace

ThreadTeam::ThreadTeam(int threads, std::vector<int> cores, int usable_cores)
    : capacity_{threads},
      size_{threads},
      may_spin_{usable_cores >= threads},
      cores_{std::move(cores)},
      ids_(static_cast<std::size_t>(threads)),
      delays_(static_cast<std::size_t>(threads)),
      wanted_{threads, may_spin_ ? 1 : kLooksOnSharedCores} {
    PACE_CHECK(threads >= 1 && threads < static_cast<int>(kRun), "a team has at least the caller");
    PACE_CHECK(cores_.empty() || static_cast<int>(cores_.size()) == threads, "one core per thread");
    ids_[0].store(own_thread_id(), std::memory_order_relaxed);
    if (!cores_.empty()) {
        (void)pthread_getaffinity_np(pthread_self(), sizeof(caller_affinity_), &caller_affinity_);
        caller_pinned_ = allow(0, {cores_.data(), 1});
    }
    threads_.reserve(static_cast<std::size_t>(threads) - 1);
    for (int thread = 1; thread < threads; ++thread) {
        threads_.emplace_back([this, thread] { worker(thread); });
    }
}

ThreadTeam::~ThreadTeam() {
    // Release pairs with the workers' acquire of run_word_ and grown_: they see stop_.
    stop_.store(true, std::memory_order_relaxed);
    publish();
    grown_.fetch_add(1);
    futex(grown_, FUTEX_WAKE_PRIVATE, INT_MAX);
    for (std::thread& thread : threads_) thread.join();
    if (caller_pinned_) {
        (void)pthread_setaffinity_np(pthread_self(), sizeof(caller_affinity_), &caller_affinity_);
    }
}

// ---- runs

void ThreadTeam::run_erased(Function function, void* context) {
    if (capacity_ == 1) {
        function(context, 0);
        return;
    }
    const auto begin = std::chrono::steady_clock::now();
    function_ = function;
    context_ = context;
    const bool grows = wanted_.size() > size();
    size_.store(wanted_.size(), std::memory_order_relaxed);
    if (size() > 1) publish();
    if (grows) {
        grown_.fetch_add(1);  // after the run's word: see park()
        futex(grown_, FUTEX_WAKE_PRIVATE, INT_MAX);
    }
    function(context, 0);
    barrier();  // no thread is inside `work` any more when run() returns
    account(std::chrono::steady_clock::now() - begin);
}

/// Begins a run for those that take part. Release publishes function_, context_ and size_; pairs
/// with the acquire in worker() and park().
void ThreadTeam::publish() {
    const std::uint32_t number = run_word_.load(std::memory_order_relaxed) / kRun + 1;
    run_word_.store(number * kRun + static_cast<std::uint32_t>(size()));
    wake(run_word_);
}

void ThreadTeam::worker(int thread) {
    const auto own = static_cast<std::size_t>(thread);
    if (!cores_.empty()) (void)allow(0, {&cores_[own], 1});
    ids_[own].store(own_thread_id(), std::memory_order_relaxed);
    std::uint32_t seen = 0;
    while (true) {
        const bool crowded = crowded_.load(std::memory_order_relaxed) > 0;
        const int spins = may_spin_ ? kSpinsBetweenRuns
                          : crowded ? kSpinsToMeet
                                    : kSpinsBeforeYield;
        if (!spin_while(run_word_, seen, spins)) rest_while(run_word_, seen, kYieldsBetweenRuns);
        seen = run_word_.load();
        if (!takes_part(thread, seen)) seen = park(thread);
        if (stop_.load(std::memory_order_relaxed)) return;
        function_(context_, thread);
        barrier();
    }
}

/// Sleeps until a run begins that has a place for this thread, and gives its word. Such a run waits
/// for the thread at its barriers, so the word is still that of the run.
std::uint32_t ThreadTeam::park(int thread) {
    while (true) {
        const std::uint32_t grown =
            grown_.load();  // before the word: a run that is missed here raises it
        const std::uint32_t word = run_word_.load();
        if (takes_part(thread, word) || stop_.load(std::memory_order_relaxed)) return word;
        futex(grown_, FUTEX_WAIT_PRIVATE, grown);
    }
}

// ---- how many take part

/// A run is over, which took so long.
void ThreadTeam::account(std::chrono::nanoseconds busy) {
    busy_ += busy;
    if (busy_ < TeamSize::kLookInterval) return;
    const auto waited = may_spin_ ? longest_delay() : std::optional{absence()};
    if (waited) {
        wanted_.look(std::chrono::steady_clock::now().time_since_epoch(), busy_, *waited);
        if (wanted_.size() != size()) pin(wanted_.size() == capacity_);
    }
    busy_ = {};
}

/// How long the thread that waited longest for its core did so since the last call.
std::optional<std::chrono::nanoseconds> ThreadTeam::longest_delay() {
    std::chrono::nanoseconds longest{0};
    for (std::size_t thread = 0; thread < delays_.size(); ++thread) {
        const auto delay = delay_of(ids_[thread].load(std::memory_order_relaxed));
        if (!delay) return std::nullopt;
        if (static_cast<int>(thread) < size())
            longest = std::max(longest, *delay - delays_[thread]);
        delays_[thread] = *delay;
    }
    return longest;
}

/// How long a thread was missed at barriers since the last call. On shared cores the kernel's
/// delays tell nothing: a thread that yields is delayed, and one that takes its turn after another
/// process of the pipeline is so without harm.
std::chrono::nanoseconds ThreadTeam::absence() {
    const int others = std::max(size() - 1, 1);
    return std::chrono::nanoseconds{missed_.exchange(0, std::memory_order_relaxed) / others};
}

void ThreadTeam::start_anew() {
    wanted_.start_anew();
    busy_ = {};
    absence();
    if (size() != capacity_) pin(true);
}

/// Each thread on its own core, or all on any core of the team.
void ThreadTeam::pin(bool apart) {
    for (std::size_t thread = 0; thread < cores_.size(); ++thread) {
        const std::span<const int> cores =
            apart ? std::span<const int>{&cores_[thread], 1} : std::span<const int>{cores_};
        (void)allow(ids_[thread].load(std::memory_order_relaxed), cores);
    }
}

void ThreadTeam::barrier() {
    if (size_.load(std::memory_order_relaxed) == 1) return;
    const std::uint32_t phase =
        barrier_phase_.load(std::memory_order_relaxed);  // changes only when we all arrived
    // Acquire-release: the last one in sees what all others wrote before they arrived.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) ==
        size_.load(std::memory_order_relaxed) - 1) {
        arrived_.store(0, std::memory_order_relaxed);  // ordered by the release below
        barrier_phase_.store(phase + 1);
        wake(barrier_phase_);
        return;
    }
    // Acquire pairs with the release of the last one in.
    if (spin_while(barrier_phase_, phase, may_spin_ ? kSpinsAtBarrier : kSpinsToMeet)) return;
    const auto since = std::chrono::steady_clock::now();
    rest_while(barrier_phase_, phase, kYieldsAtBarrier);
    missed_.fetch_add((std::chrono::steady_clock::now() - since).count(),
                      std::memory_order_relaxed);
}

/// False: the word still has that value after so many looks.
bool ThreadTeam::spin_while(std::atomic<std::uint32_t>& word, std::uint32_t value, int spins) {
    for (int i = 0; i < spins; ++i) {
        if (word.load(std::memory_order_acquire) != value) return true;
        cpu_relax();
    }
    return false;
}

/// Yields on shared cores, so many times at most, then sleeps.
void ThreadTeam::rest_while(std::atomic<std::uint32_t>& word, std::uint32_t value, int yields) {
    for (int i = 0; !may_spin_ && i < yields && yield(); ++i) {
        if (word.load(std::memory_order_acquire) != value) return;
    }
    // Sequentially consistent, as the store that is waited for and the load in wake(): either that
    // load sees this sleeper, or the kernel sees the new value and does not sleep.
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
