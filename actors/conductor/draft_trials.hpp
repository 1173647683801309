// DraftTrials: which running requests a process that decoding does not depend on (a draft, perhaps with
// correct) gets a Begin of.
//
// A request may kill or hang the draft at each of its Begins. Committed tokens do not prove that it does not,
// because decoding continues without the draft. What clears a request is that the draft stays alive with it:
//
//   to_tell() --> [on trial] ---- verdict() or look(): it lives with it ------> [harmless]
//       ^             |                                                            |
//       |             +---- lost(): counted as a segment's loss (suspects.hpp) ----+
//       |             v
//       +-- [untold], told alone if it is a suspect
//                     |  `poison_limit` losses in a row, alone at two of them
//                     v
//                 [withheld] until its end: it continues without this draft
//
// "Told" in identifiers: the draft has got the request's Begin. A request is harmless if, `trial` after the
// Begin, candidates are verified that are certainly the draft's own; or, because a draft may have nothing to
// propose, after `silent_trial`, which is longer than the detection of any hang takes. Time counts in short
// steps, so that a suspension of the machine does not count.
//
// The losses of a withheld request do not count against the draft once the draft has worked with another
// request: it proved harmless, or it ended by itself after candidates of this draft were verified. A draft
// that dies with every request is disabled in the end.
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
    /// After this time a draft that is alive and still proposes is not killed by the request.
    Micros trial{20'000'000};
    /// The same for a draft that proposes nothing. Longer than the detection of a hang, also where earlier
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
    /// Its attempt is cancelled: the draft drops it.
    void void_attempt(RequestId request);
    /// All attempts are cancelled, for a reason other than this draft.
    void void_all() { told_.clear(); }
    /// It is over. `by_itself`: the answer is complete.
    void ended(RequestId request, bool by_itself);
    /// It is over, and its losses are excused because it was poison for other stages too.
    void explained(RequestId request) { excuses_.erase(request); }

    /// A verdict of its current attempt commits from `base` on. `candidates`: some were verified, and only
    /// this draft proposes. True: call to_tell() again.
    [[nodiscard]] bool verdict(RequestId request, Position base, bool candidates, Micros now);
    /// Time has passed. True: call to_tell() again.
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
