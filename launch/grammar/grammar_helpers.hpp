// GrammarHelpers: compiles grammars in helper processes, for as long as a command or server lives.
//
//     GrammarHelpers helpers{vocabulary, {}};
//     helpers.compile(spec, [](Result<CompiledGrammarPtr> made) { ... });
//
// Equal grammars that wait are compiled once; what was compiled, and what was refused by the
// library or a limit, is kept by hash: the least recently used goes when there is too much. A queue
// that is full refuses. Owns a thread and a process for each helper; the processes start with the
// first grammar. The destructor ends them; grammars that wait end with an error. Threads: all
// members from any. `done` runs on the caller's thread if the result is there already, else on a
// helper's thread, where it must not wait.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/grammar/helper_frames.hpp"
#include "launch/grammar/helper_process.hpp"
#include "model/grammar/grammar.hpp"

namespace paceline {

struct GrammarHelperOptions {
    std::size_t helpers = 2;
    GrammarLimits limits = {};
    std::size_t waiting_max = 64;                    // grammars, beside those that are compiled
    std::size_t kept_bytes = std::size_t{64} << 20;  // of compiled grammars
    std::vector<std::string> command = {};           // of a helper; empty: this program
};

class GrammarHelpers {
public:
    using Done = std::function<void(const Result<CompiledGrammarPtr>&)>;

    GrammarHelpers(GrammarVocabulary vocabulary, GrammarHelperOptions options);
    GrammarHelpers(const GrammarHelpers&) = delete;
    GrammarHelpers& operator=(const GrammarHelpers&) = delete;
    ~GrammarHelpers();

    /// What waits for a result: once it is gone, a grammar that is not begun is left out, and its
    /// `done` is not called. Nothing: the result is always wanted.
    using Waiter = std::optional<std::weak_ptr<const void>>;

    /// Calls `done` once. Errors: those of HelperProcess::compile(); Cancelled if too many wait or
    /// at the end.
    void compile(const GrammarSpec& spec, Done done, Waiter waiter = {});
    /// The same, and waits.
    [[nodiscard]] Result<CompiledGrammarPtr> compile_and_wait(const GrammarSpec& spec);

    /// How often a helper was asked.
    [[nodiscard]] std::uint64_t compilations() const;

private:
    struct Wanted {
        Done done;
        Waiter waiter;
    };
    struct Job {
        GrammarSpec spec;
        std::vector<Wanted> wanted;
    };
    struct Kept {
        std::string hash;
        Result<CompiledGrammarPtr> result;
        std::size_t bytes = 0;
    };

    void work(HelperProcess& helper);
    /// Its client has left.
    [[nodiscard]] static bool has_left(const Wanted& wanted);
    void drop_unwanted();
    [[nodiscard]] const Result<CompiledGrammarPtr>* find(const std::string& hash);
    void keep(const std::string& hash, const Result<CompiledGrammarPtr>& result);

    HelperTask task_;
    GrammarHelperOptions options_;
    mutable std::mutex mutex_;  // of all below
    std::condition_variable changed_;
    bool ending_ = false;
    std::deque<std::string> waiting_;  // hashes, in order
    std::map<std::string, Job> jobs_;  // waiting or at work
    std::list<Kept> kept_;             // the latest used first
    std::size_t kept_bytes_ = 0;
    std::uint64_t compilations_ = 0;
    std::vector<std::unique_ptr<HelperProcess>> helpers_;  // each is a thread's
    std::vector<std::thread> threads_;
};

}  // namespace paceline
