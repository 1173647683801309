// PoisonQuarantine: finds the request that kills stages (the poison), if there is one, by running
// the requests in question one at a time.
//
// A request is present at a loss if it was running when the stage was lost. All running requests
// are present, and at most one of them is the cause. Losses are "in a row" if the request has
// committed no token between them.
//
//              loss               second loss in a row
//   [Clear] ----------> [Present] -----------------> [Quarantined] ----> poison: present_at_loss()
//      ^                    |                            |                is true
//      +------ token -------+---------- token -----------+
//
// A request is poison if it was present at `poison_limit` losses in a row or more, isolated at two
// of them, and alone at the last one.
//
// Quarantined requests run isolated: the one that was present at the most losses begins first, and
// no other request begins until it has committed a token. After the loss of a stage no request
// runs, so the first isolated request is alone. A later one may run beside requests that were
// isolated before it and have committed a token since.
// Only a request that was alone at a loss can be found to be poison, so no request is ended because
// of another one.
// One loss while a request is isolated is not enough: a harmless request that ran beside the poison
// was present at two losses already, and a stage may die for another reason while the request is
// isolated. If the request was not alone at the first loss while isolated, it is alone at the next
// one: it is then the request that was present at the most losses, so it begins first.
// The poison costs four deaths of stages if other requests ran beside it at the first two, and
// three if not.
// This is fewer than the restart intensity allows, and all of them are excused (explained_by()).
// Bisecting the quarantined requests would cost a death for each half that contains the poison; to
// isolate a harmless request costs only a prefill.
// The loss of a stage that decoding does not depend on (a draft) is no evidence against the
// requests that were present, but it is excused as well if one of them is found to be poison.
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

class PoisonQuarantine {
public:
    /// `poison_limit`: losses in a row, 1 or more. With 1 the first loss alone is enough.
    explicit PoisonQuarantine(std::uint32_t poison_limit);

    /// `stage` was lost. present_at_loss() or present_at_draft_loss() follows for each running
    /// request.
    void lost(StageId stage);
    /// `request` was running at the newest loss; `alone`: no other request was. True: it is poison.
    [[nodiscard]] bool present_at_loss(RequestId request, bool alone);
    /// The same for the loss of a stage that decoding does not depend on.
    void present_at_draft_loss(RequestId request);
    /// `request` has committed a token. True: it was quarantined, so other requests may begin.
    bool cleared(RequestId request);
    /// `request` has ended, or another turn of it begins.
    void forget(RequestId request) { losses_.erase(request); }

    /// Of the waiting requests, longest first, those that may begin now beside the running ones.
    [[nodiscard]] std::vector<RequestId> may_begin(std::span<const RequestId> waiting,
                                                   std::span<const RequestId> running) const;
    /// The number of losses in a row at which `request` was present, without those of
    /// present_at_draft_loss().
    [[nodiscard]] std::size_t losses_of(RequestId request) const;
    /// The stages whose losses a poison request explains, in order. Each loss is returned once,
    /// also if another request explains it as well.
    [[nodiscard]] std::vector<StageId> explained_by(RequestId request);

private:
    struct Loss {
        std::uint64_t number = 0;
        StageId stage;
        bool of_draft = false;  // of a stage that decoding does not depend on
        bool isolated = false;  // the request was isolated, or alone before it was quarantined
        bool explained = false;
    };
    [[nodiscard]] bool is_quarantined(RequestId request) const;

    std::uint32_t poison_limit_;
    Loss newest_;
    std::map<RequestId, std::vector<Loss>> losses_;  // in a row, of the requests present at any
};

}  // namespace paceline
