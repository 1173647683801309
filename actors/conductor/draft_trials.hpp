// DraftTrials: which running requests one stage without which decoding goes on (a draft) is told of.
//
// A request may kill the draft at each of its Begins. No token says that it does not: tokens come without
// the draft. So what counts is that the draft lives with it for as long as a hang takes to be noticed:
//
//   to_tell() --> [on trial] -- `trial` later the draft still lives: look() --> [harmless]
//       ^             |                                                            |
//       |             +---- lost(): counted as a segment's loss (suspects.hpp) ----+
//       |             v
//       +-- [untold], told alone if it is a suspect
//                     |  `poison_limit` losses in a row, alone at two of them
//                     v
//                 [withheld] until its end: it goes on without this draft
//
// The losses of a withheld request do not count against the draft, but only once the draft has worked with
// another one: else a draft that dies of every request would never be left out.
// Pure; bounded by the requests that run, and by the deaths that the restart intensity allows.
// Threads: the conductor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "actors/conductor/suspects.hpp"
#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class DraftTrials {
public:
    /// `trial`: longer than a hang of the stage takes to be noticed.
    DraftTrials(StageId stage, std::uint32_t poison_limit, Micros trial)
        : stage_{stage}, suspects_{poison_limit}, trial_{trial} {}

    /// Of those that run, longest first, the ones to be told of now. From now on they are on trial.
    [[nodiscard]] std::vector<RequestId> to_tell(std::span<const RequestId> running, Micros now);
    void lost(Micros now);
    /// Its attempt is void: the draft forgets it.
    void void_attempt(RequestId request) { told_.erase(request); }
    /// The same of all, because of something that is not the draft's.
    void void_all() { told_.clear(); }
    /// It is over. `by_itself`: the answer is complete.
    void ended(RequestId request, bool by_itself);
    /// It is over, and its losses are excused because it was poison for other stages too.
    void explained(RequestId request) { excuses_.erase(request); }

    /// Time passes. True: others may be told now.
    [[nodiscard]] bool look(Micros now);
    /// How many losses are to be excused, each once.
    [[nodiscard]] std::size_t take_excused();

private:
    struct Told {
        Micros at{0};
        bool harmless = false;
    };
    void has_worked();

    StageId stage_;
    Suspects suspects_;
    Micros trial_;
    std::map<RequestId, Told> told_;
    std::set<RequestId> withheld_;  // of those that run
    std::map<RequestId, std::size_t>
        excuses_;  // losses that withheld requests explain, if it works
    std::size_t excused_ = 0;
};

}  // namespace paceline
