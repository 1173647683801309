// ThreadTeam: threads pinned to cores that run one function together, many times a second.
//
// run(work) calls work(0) on the calling thread and work(1..size-1) on the others, and returns
// when all have; inside, barrier() makes all wait for all.
//
// How it waits: first it spins, then it yields where others compute on its cores too (another process of
// the pipeline, another team of this one, or there are fewer cores than threads), then it sleeps in the
// kernel. A yield that took long shows that the core went to a busy process: sched_yield() gives it away
// for a whole slice of the scheduler, milliseconds, many times a token. From then on the team sleeps
// instead for a while, because a thread that is woken gets its core back at once.
//
// Owns its threads. run() is called by the thread that made the team, which becomes thread 0 and
// is pinned too (until the team is destroyed, when its old affinity is restored).
#pragma once

#include <atomic>
#include <cstdint>
#include <sched.h>
#include <thread>
#include <vector>

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

    [[nodiscard]] int size() const { return size_; }

    template <class Work>
    void run(Work& work) {
        run_erased([](void* context, int thread) { (*static_cast<Work*>(context))(thread); },
                   &work);
    }

    /// All threads of the team must call it; it returns when the last one has.
    void barrier();

private:
    using Function = void (*)(void* context, int thread);
    void run_erased(Function function, void* context);
    void worker(int thread, int core);
    /// How long a thread waits awake: spins on cores of its own, yields on shared ones.
    struct Patience {
        int spins;
        int yields;
    };
    void wait_while(std::atomic<std::uint32_t>& word,
                    std::uint32_t value,
                    const Patience& patience);
    void wake(std::atomic<std::uint32_t>& word);
    bool yield();

    int size_;
    bool may_spin_;
    std::vector<std::thread> threads_;
    cpu_set_t caller_affinity_{};
    bool caller_pinned_ = false;

    Function function_ =
        nullptr;  // written before run_count_ is released, read after it is acquired
    void* context_ = nullptr;
    alignas(64) std::atomic<std::uint32_t> run_count_{0};
    std::atomic<bool> stop_{false};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> barrier_phase_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<int> crowded_{0};  // waits to go that do not yield
};

}  // namespace paceline
