// Suspects: finds the request that kills stages, if there is one, by running suspects one at a time.
//
//                 loss            second loss without a token          `poison_limit` losses in a row or
//   [Innocent] ----------> [Lost] --------------------> [Suspect]      more, two of them on trial, alone at
//       ^                    |                            |    |       the last one: met() is true
//       +----- token --------+-------- token -------------+    +--------------------------> poison
//
// "To meet a loss" is to be running when a stage is lost. All running requests meet it, and at most one of
// them is its cause. So suspects are put on trial one after the other, the one with the most losses first:
// no other request begins until the one on trial has committed a token. After a loss no request runs, so the
// first trial is alone. Only a request that was alone can be identified as poison: a request is never ended
// because of another one.
// One loss on trial is not enough: a suspect that ran beside the poison has met two losses already, and a
// stage may die for another reason during its trial. The first of the two may be met beside requests that
// were on trial before and have committed a token since; the next trial is that of the same request, alone.
// So a poison request costs a stage four deaths if others ran beside it at the first two, and three if not.
// This is fewer than the restart intensity allows, and all are excused (explained_by()).
// Bisecting the suspects would cost a death for each half that holds the poison; a trial that passes costs
// only a prefill.
// The loss of a stage that decoding does not depend on (a draft) is no evidence against a request, but is
// excused as well if the request turns out to be poison.
//
// Pure; bounded by the requests that run or wait. Threads: the conductor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class Suspects {
public:
    /// `poison_limit`: losses in a row, 1 or more. With 1 the first loss alone is enough.
    explicit Suspects(std::uint32_t poison_limit);

    /// `stage` was lost; met() and met_beside() say which requests ran.
    void lost(StageId stage);
    /// `request` was running at the newest loss; `alone`: no other one was. True: it is poison.
    [[nodiscard]] bool met(RequestId request, bool alone);
    /// As met(), for a stage that decoding does not depend on.
    void met_beside(RequestId request);
    /// It has committed a token. True: it was a suspect, so others may begin.
    bool cleared(RequestId request);
    /// It is over, or another turn of it begins.
    void forget(RequestId request) { losses_.erase(request); }

    /// Of those that wait, longest first, the ones that may begin now beside those that run.
    [[nodiscard]] std::vector<RequestId> may_begin(std::span<const RequestId> waiting,
                                                   std::span<const RequestId> running) const;
    /// How many losses in a row it met, not counting those of met_beside().
    [[nodiscard]] std::size_t met_by(RequestId request) const;
    /// The stages whose losses a poison request explains, in order. Each loss is returned once, also if
    /// another request explains it as well.
    [[nodiscard]] std::vector<StageId> explained_by(RequestId request);

private:
    struct Loss {
        std::uint64_t number = 0;
        StageId stage;
        bool beside = false;
        bool on_trial = false;  // or alone before it was a suspect
        bool explained = false;
    };
    [[nodiscard]] bool is_suspect(RequestId request) const;

    std::uint32_t poison_limit_;
    Loss newest_;
    std::map<RequestId, std::vector<Loss>> losses_;  // in a row, of those that met any
};

}  // namespace paceline
