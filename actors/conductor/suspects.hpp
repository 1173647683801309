// Suspects: which requests may be the reason why stages die, and which of them may run together.
//
//                 loss            second loss without a token          alone at the last loss, and
//   [Innocent] ----------> [Lost] --------------------> [Suspect]      `poison_limit` in a row
//       ^                    |                            |    |       or more: lost() is true
//       +----- token --------+-------- token -------------+    +--------------------------> poison
//
// Every running request meets a loss, and one at most is its reason. So suspects are tried one after
// the other, beginning with the one that has met most losses: nothing else begins until the one on
// trial has committed a token. After a loss nothing runs, so the first trial is alone, and only what was
// alone can be named as poison: a request is never given up because of another one that ran beside it.
// Halving the suspects would need a death for each half that holds the poison; a trial that passes needs
// none, only its prefill.
//
// Pure; bounded by the requests that run or wait. Threads: the conductor's loop.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class Suspects {
public:
    /// `poison_limit`: losses in a row, 1 or more.
    explicit Suspects(std::uint32_t poison_limit);

    /// `request` was running when `stage` was lost; `alone`: no other one was. True: it is poison.
    [[nodiscard]] bool lost(RequestId request, StageId stage, bool alone);
    /// It has committed a token. True: it was a suspect, so others may begin.
    bool cleared(RequestId request);
    /// It is over, or another turn of it begins.
    void forget(RequestId request) { losses_.erase(request); }

    /// Of those that wait, longest first, the ones that may begin now beside those that run.
    [[nodiscard]] std::vector<RequestId> may_begin(std::span<const RequestId> waiting,
                                                   std::span<const RequestId> running) const;
    /// The stages whose losses it met in a row, in order; empty if none.
    [[nodiscard]] std::vector<StageId> losses_of(RequestId request) const;

private:
    [[nodiscard]] bool is_suspect(RequestId request) const;

    std::uint32_t poison_limit_;
    std::map<RequestId, std::vector<StageId>> losses_;  // in a row, of those that met any
};

}  // namespace paceline
