// ThreadTeam: threads pinned to cores that run one function together, many times a second.
//
// run(work) calls work(0) on the calling thread and work(1..size-1) on the others, and returns
// when all have; inside, barrier() makes all wait for all.
//
// How many take part: all, until one is kept waiting for its core by something else
// (team_size.hpp); then one less, and none is pinned within the team's cores, so that the scheduler
// finds the free ones. A team with cores of its own asks the kernel for how long its threads were
// ready and had no core; one that shares cores measures how long a thread was missed at barriers.
// size() changes between two runs alone. Threads that do not take part sleep.
//
// How it waits: first it spins, then it yields where others compute on its cores too (another
// process of the pipeline, another team of this one, or there are fewer cores than threads), then
// it sleeps in the kernel. A yield that took long shows that the core went to a busy process:
// sched_yield() gives it away for a whole slice of the scheduler, milliseconds, many times a token.
// From then on the team sleeps instead for a while, because a thread that is woken gets its core
// back at once.
//
// Owns its threads. run() is called by the thread that made the team, which becomes thread 0 and
// is pinned too (until the team is destroyed, when its old affinity is restored).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sched.h>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "model/kernels/cpu/team_size.hpp"

namespace paceline {

class ThreadTeam {
public:
    /// `cores`: one core per thread to pin it to; empty: `threads` threads, not pinned.
    /// `usable_cores`: how many cores this team has for itself, 0 if it shares them; with fewer
    /// than threads no thread spins.
    ThreadTeam(int threads, std::vector<int> cores, int usable_cores);
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;
    ~ThreadTeam();

    /// The threads that take part, 1 .. capacity(): during a run all, before it those of the last
    /// one.
    [[nodiscard]] int size() const { return size_.load(std::memory_order_relaxed); }
    [[nodiscard]] int capacity() const { return capacity_; }

    template <class Work>
    void run(Work& work) {
        run_erased([](void* context, int thread) { (*static_cast<Work*>(context))(thread); },
                   &work);
    }

    /// All threads of the team must call it; it returns when the last one has.
    void barrier();

    /// Between runs: all take part again. What was seen of those so far, which loaded a model
    /// beside other processes that load, tells nothing of those to come.
    void start_anew();

private:
    using Function = void (*)(void* context, int thread);
    void run_erased(Function function, void* context);
    // A run's word: its number, and how many threads take part.
    static constexpr std::uint32_t kRun = 4096;
    [[nodiscard]] static bool takes_part(int thread, std::uint32_t word) {
        return static_cast<std::uint32_t>(thread) < word % kRun;
    }
    void publish();
    void worker(int thread);
    [[nodiscard]] std::uint32_t park(int thread);
    void account(std::chrono::nanoseconds busy);
    void pin(bool apart);
    [[nodiscard]] std::optional<std::chrono::nanoseconds> longest_delay();
    std::chrono::nanoseconds absence();
    static bool spin_while(std::atomic<std::uint32_t>& word, std::uint32_t value, int spins);
    void rest_while(std::atomic<std::uint32_t>& word, std::uint32_t value, int yields);
    void wake(std::atomic<std::uint32_t>& word);
    bool yield();

    int capacity_;
    std::atomic<int> size_;  // written between two runs
    bool may_spin_;
    std::vector<int> cores_;  // of each thread; empty: not pinned
    std::vector<std::thread> threads_;
    std::vector<std::atomic<pid_t>> ids_;           // of each thread, once it runs
    std::vector<std::chrono::nanoseconds> delays_;  // of each, for a core, when looked at last
    TeamSize wanted_;                               // of the next run
    std::chrono::nanoseconds busy_{0};              // inside run() since then
    cpu_set_t caller_affinity_{};
    bool caller_pinned_ = false;

    Function function_ =
        nullptr;  // written before run_word_ is released, read after it is acquired
    void* context_ = nullptr;
    alignas(64) std::atomic<std::uint32_t> run_word_{0};
    std::atomic<std::uint32_t> grown_{0};  // raised when more take part than before, and at the end
    std::atomic<bool> stop_{false};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> barrier_phase_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<int> crowded_{0};  // waits to go that do not yield
    // Nanoseconds that threads rested at barriers, all together, since they were looked at.
    std::atomic<std::int64_t> missed_{0};
};

}  // namespace paceline
