// DraftTrials: which running requests one process without which decoding goes on (a draft, perhaps with
// correct) is told of.
//
// A request may kill the draft at each of its Begins, or hang it. No token says that it does not: tokens come
// without the draft. So what counts is that the draft lives with it:
//
//   to_tell() --> [on trial] ---- verdict() or look(): it lives with it ------> [harmless]
//       ^             |                                                            |
//       |             +---- lost(): counted as a segment's loss (suspects.hpp) ----+
//       |             v
//       +-- [untold], told alone if it is a suspect
//                     |  `poison_limit` losses in a row, alone at two of them
//                     v
//                 [withheld] until its end: it goes on without this draft
//
// It lives with a request if, `trial` after the Begin, candidates are verified that are certainly its own; or, as
// a draft may find nothing to propose, after `silent_trial`, which is longer than any hang takes to be
// noticed. Time counts in short steps, so that one in which the machine stands still proves nothing.
//
// The losses of a withheld request do not count against the draft, but only once the draft has worked with
// another one: it lived with it, or that one ended by itself after candidates of its own were verified. A
// draft that dies of every request is left out in the end.
// Pure; bounded by the requests that run, and by the deaths that the restart intensity allows.
// Threads: the conductor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "actors/conductor/suspects.hpp"
#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

struct DraftTrialRules {
    /// A draft that lives with a request for so long, and still proposes, is not killed by it.
    Micros trial{20'000'000};
    /// The same of one that proposes nothing. Longer than a hang takes to be noticed, also where earlier
    /// incarnations hung in the same job (inherited_jobs() in runtime/parent/stage_watch.hpp).
    Micros silent_trial{140'000'000};
};

class DraftTrials {
public:
    /// `process`: as the conductor knows it.
    DraftTrials(StageId process, std::uint32_t poison_limit, DraftTrialRules rules)
        : process_{process}, suspects_{poison_limit}, rules_{rules} {}

    /// Of those that run, longest first, the ones to be told of now. From now on they are on trial.
    [[nodiscard]] std::vector<RequestId> to_tell(std::span<const RequestId> running, Micros now);
    void lost(Micros now);
    /// Its attempt is void: the draft forgets it.
    void void_attempt(RequestId request);
    /// The same of all, because of something that is not the draft's.
    void void_all() { told_.clear(); }
    /// It is over. `by_itself`: the answer is complete.
    void ended(RequestId request, bool by_itself);
    /// It is over, and its losses are excused because it was poison for other stages too.
    void explained(RequestId request) { excuses_.erase(request); }

    /// A verdict of its current attempt commits from `base` on. `candidates`: some were verified, and none but
    /// this draft proposes. True: others may be told now.
    [[nodiscard]] bool verdict(RequestId request, Position base, bool candidates, Micros now);
    /// Time passes. True: others may be told now.
    [[nodiscard]] bool look(Micros now);
    /// How many losses are to be excused, each once.
    [[nodiscard]] std::size_t take_excused();

private:
    struct Told {
        Micros at{0};  // by `clock_`
        bool again =
            false;  // in the same attempt: there may be candidates of an earlier incarnation
        std::optional<Position> own_from{};  // candidates from there on are of this incarnation
        bool proposes = false;               // some of them were verified
        bool harmless = false;
    };
    void pass(Micros now);
    bool lives_with(RequestId request, Told& told);
    void has_worked();

    StageId process_;
    Suspects suspects_;
    DraftTrialRules rules_;
    Micros clock_{0};  // without the time in which nothing was looked at
    Micros looked_at_{0};
    std::map<RequestId, Told> told_;
    std::set<RequestId> told_before_;  // in their current attempt
    std::set<RequestId> withheld_;     // of those that run
    std::map<RequestId, std::size_t>
        excuses_;  // losses that withheld requests explain, if it works
    std::size_t excused_ = 0;
};

}  // namespace paceline
