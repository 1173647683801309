// DraftQuarantine: which running requests a process that decoding does not depend on (a draft,
// perhaps with correct) gets a Begin of.
//
// A request may kill or hang the draft at each of its Begins. Committed tokens do not prove that it
// does not, because decoding continues without the draft. A request is cleared when the draft stays
// alive with it:
//
//   to_deliver() --> [delivered] -- verdict() or look(): the draft lives with it --> [harmless]
//       ^                 |                                                             |
//       |                 +-- lost(): counted as for a segment (poison_quarantine.hpp) -+
//       |                 v
//       +---- [undelivered], isolated if it is quarantined
//                         |  present at `poison_limit` losses in a row, isolated at two
//                         v
//                    [withheld] until its end: it continues without this draft
//
// A request is harmless if, `clear_after` after the Begin, candidates are verified that are
// certainly the draft's own; or, because a draft may have nothing to propose, after
// `clear_silent_after`, which is longer than the detection of any hang takes. Time counts in short
// steps, so that a suspension of the machine does not count.
//
// The losses of a withheld request do not count against the draft once the draft has worked with
// another request: that request proved harmless, or it ended by itself after candidates of this
// draft were verified. A draft that dies with every request is disabled in the end.
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

#include "actors/conductor/poison_quarantine.hpp"
#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

struct DraftQuarantineRules {
    /// After this time a draft that is alive and still proposes is not killed by the request.
    Micros clear_after{20'000'000};
    /// The same for a draft that proposes nothing. Longer than the detection of a hang, also where
    /// earlier incarnations hung in the same job (inherited_jobs() in
    /// runtime/parent/stage_watch.hpp).
    Micros clear_silent_after{140'000'000};
};

class DraftQuarantine {
public:
    /// `process`: as the conductor knows it.
    DraftQuarantine(StageId process, std::uint32_t poison_limit, DraftQuarantineRules rules)
        : process_{process}, quarantine_{poison_limit}, rules_{rules} {}

    /// Of the running requests, longest first, those whose Begins are to be sent now; they count as
    /// delivered.
    [[nodiscard]] std::vector<RequestId> to_deliver(std::span<const RequestId> running, Micros now);
    void lost(Micros now);
    /// The attempt of `request` is cancelled: the draft drops it.
    void void_attempt(RequestId request);
    /// All attempts are cancelled, for a reason other than this draft.
    void void_all() { delivered_.clear(); }
    /// `request` is over. `by_itself`: the answer is complete.
    void ended(RequestId request, bool by_itself);
    /// `request` is over, and its losses are excused because it was poison for other stages too.
    void explained(RequestId request) { excuses_.erase(request); }

    /// A verdict of the current attempt of `request` commits from `base` on. `candidates`: some
    /// were verified, and only this draft proposes. True: call to_deliver() again.
    [[nodiscard]] bool verdict(RequestId request, Position base, bool candidates, Micros now);
    /// Time has passed. True: call to_deliver() again.
    [[nodiscard]] bool look(Micros now);
    /// How many losses are to be excused, each once.
    [[nodiscard]] std::size_t take_excused();

private:
    struct DeliveredBegin {
        Micros at{0};  // by `clock_`
        bool again =
            false;  // in the same attempt: there may be candidates of an earlier incarnation
        std::optional<Position> own_from{};  // candidates from there on are of this incarnation
        bool proposes = false;               // some of them were verified
        bool harmless = false;
    };
    void pass(Micros now);
    bool lives_with(RequestId request, DeliveredBegin& delivered);
    void has_worked();

    StageId process_;
    PoisonQuarantine quarantine_;
    DraftQuarantineRules rules_;
    Micros clock_{0};  // without the time in which nothing was looked at
    Micros looked_at_{0};
    std::map<RequestId, DeliveredBegin> delivered_;
    std::set<RequestId> delivered_before_;  // in their current attempt
    std::set<RequestId> withheld_;          // of those that run
    std::map<RequestId, std::size_t>
        excuses_;  // losses that withheld requests explain, if it works
    std::size_t excused_ = 0;
};

}  // namespace paceline
