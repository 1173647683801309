// DraftBegins: which Begins the stages get that decoding does not depend on (draft, correct).
//
// Such a stage gets the Begins of the running requests that the quarantine of its process allows
// (draft_quarantine.hpp), again after its process was replaced, and again when it missed a verdict
// and asks for it (begin_resend_queue.hpp). Essential stages get theirs from RequestLifecycle.
// Borrows stages and requests. Bounded by the requests that run and the stages.
// Threads: the conductor's loop.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "actors/conductor/begin_resend_queue.hpp"
#include "actors/conductor/draft_quarantine.hpp"
#include "actors/conductor/request_table.hpp"
#include "actors/conductor/stage_table.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

class DraftBegins {
public:
    /// Posts the Begin of a running request to a stage.
    using Post = std::function<void(RequestId, const RequestRecord&, StageId)>;

    DraftBegins(const ConductorPlan& plan,
                const StageTable& stages,
                RequestTable& requests,
                Post post);
    DraftBegins(const DraftBegins&) = delete;
    DraftBegins& operator=(const DraftBegins&) = delete;

    /// Before all other calls. `context` outlives this object.
    void start(StageContext& context) { context_ = &context; }

    /// Posts to each process that is at work the Begins that its quarantine allows and that it has
    /// not got yet.
    /// Before start(): nothing happens.
    void post_allowed();
    /// A stage asks for a Begin. One of another attempt, or of a request that has ended, is
    /// ignored. The stage is reported as faulty if it is essential or the position is impossible.
    void wanted(StageId from, const control::BeginWanted& wanted);
    /// The text of a running request has grown: posts to the stages that waited for that.
    void post_wanted(RequestId request, const RequestRecord& record);

    /// True: the loss counts as one of this process. False: it is handled as the loss of an
    /// essential stage of the same process, or the process was lost already.
    bool lost(const StageTable::Stage& lost);
    /// What was wanted by a stage that is lost: its next incarnation gets all Begins anyway.
    void forget(StageId stage) { resends_.forget(stage); }
    /// A verdict shows that time has passed and which candidates were verified.
    void verdict(const msg::Verdict& verdict);
    /// The attempt of a request is cancelled.
    void void_attempt(RequestId request);
    /// `by_itself`: the answer is complete.
    void ended(RequestId request, bool by_itself);
    /// It is over because it is poison for essential stages.
    void explained(RequestId request);

private:
    [[nodiscard]] std::vector<RequestId> speculating() const;
    void excuse(StageId home, DraftQuarantine& quarantine);

    StageContext* context_ = nullptr;
    const StageTable& stages_;
    RequestTable& requests_;
    Post post_;
    std::map<StageId, DraftQuarantine> quarantines_;  // by process
    BeginResendQueue resends_;
};

}  // namespace paceline
