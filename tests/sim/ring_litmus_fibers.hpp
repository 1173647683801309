// Fibers: a few bodies of code that take turns on one thread, as one seed decides.
//
// A body runs until it says turn() or park(); then the seed picks who goes on, which may be the
// same one. So a body can be stopped at any such place for as long as the seed likes, and the
// same seed gives the same interleaving. A parked body goes on only once its word is 0, like a
// sleeper on a futex; when all who are left are parked, run() returns.
//
// Owns the stacks. Everything runs inside run() and inside the destructor, which unwinds what is
// left by an exception that bodies let through.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#include "tests/unit/ipc/seeded_random.hpp"

namespace paceline::test {

class Fibers {
public:
    /// Thrown out of turn() and park() when the run is given up.
    struct GivenUp {};

    /// One time in `switch_one_in`, turn() lets the seed pick who goes on.
    Fibers(std::uint64_t seed, std::uint32_t switch_one_in)
        : random_{seed}, switch_one_in_{switch_one_in} {}
    Fibers(const Fibers&) = delete;
    Fibers& operator=(const Fibers&) = delete;
    ~Fibers();

    void add(std::function<void()> body);
    /// Until every body is over or parked, or one has called stop().
    void run();
    /// Ends run() at the next turn: a failure was found.
    void stop() { stopped_ = true; }

    /// For bodies: a place at which the others may run. `tag` names it in the hash.
    void turn(std::uint32_t tag);
    /// For bodies: sleeps while `word` is not 0.
    void park(const std::atomic<std::uint32_t>& word);

    /// Whose turn it is.
    [[nodiscard]] std::size_t current() const { return current_; }
    [[nodiscard]] bool is_parked(std::size_t fiber) const {
        return fibers_[fiber]->word != nullptr;
    }
    [[nodiscard]] bool is_over(std::size_t fiber) const { return fibers_[fiber]->over; }
    /// Over everything that was noted: two runs of one seed must agree on it.
    [[nodiscard]] std::uint64_t hash() const { return hash_; }
    void note(std::uint64_t event) { hash_ = (hash_ ^ event) * 0x100000001b3ULL; }

private:
    struct Fiber {
        std::function<void()> body;
        ucontext_t context{};
        std::vector<std::byte> stack;
        void* fake_stack = nullptr;  // AddressSanitizer's
        const std::atomic<std::uint32_t>* word = nullptr;
        bool over = false;
    };
    static void enter(unsigned high, unsigned low);
    void body_of_current();
    void resume(std::size_t fiber);
    void leave();
    [[nodiscard]] bool is_runnable(const Fiber& fiber) const;

    SeededRandom random_;
    std::uint32_t switch_one_in_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    ucontext_t main_{};
    const void* main_stack_ = nullptr;
    std::size_t main_stack_bytes_ = 0;
    std::size_t current_ = 0;
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
    bool stopped_ = false;
    bool given_up_ = false;
};

}  // namespace paceline::test
