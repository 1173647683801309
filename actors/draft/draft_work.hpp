// DraftWork: what the two speculative stages, DraftActor and CorrectActor, have in common: the
// requests, from Begin through verdicts to their end. Its parts (work/) do the rest:
//
//     GrowthSteps      how trees grow between jobs; what requests want from the next job
//     ProposalOutlet   proposals to the first segment and to the other speculative stage
//     ModelPasses, SourceJobs, SkipSetJobs   the jobs, one at a time
//
// Handles: Begin, Verdict, Stop, Price, OwnTokens.   Emits: none; the parts what they declare.
//
// A request:
//
//             Begin                     the growth rule is satisfied
//   [absent] -------> [Growing] ------------------------------------> [Waiting]
//       ^                 | ^ ^                                          | |
//       |                 | | |   Verdict; a Proposal of an exit or of   | |
//       |                 | | |   the other speculative stage            | |
//       |                 | | +------------------------------------------+ |
//       |                 | |                                              |
//       |                 | +--- Begin, once more ----- [Missed] <---------+  a Verdict after a
//       |                 v                                 v              v  gap: BeginWanted
//       +---------------------------------------------------------------- (same)
//          Stop; a Verdict that ends the answer; the first or the last segment was lost
//
// How a request grows depends on the pace (decoding/growth.hpp). Messages are handled while a job
// runs: a Verdict re-roots the tree at once.
// A peer that sends an invalid message is reported and replaced (sender_fault.hpp); an invalid
// Begin, and errors of this stage, end this stage.
// Losing this stage changes no attempt. It may miss verdicts while it is lost or its ring is full.
// After a missed verdict it asks the conductor for the request's Begin again, and proposes nothing
// for that request until it comes. The cached text is kept; it reads only the new tokens.
// Threads: all calls come from the stage's loop; a job touches the model, or one source. Owns the
// model, and one source per request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "actors/decoding/grammar/grammar_store.hpp"
#include "actors/draft/draft_plan.hpp"
#include "actors/draft/draft_request.hpp"
#include "actors/draft/work/draft_host.hpp"
#include "actors/draft/work/growth_steps.hpp"
#include "actors/draft/work/model_passes.hpp"
#include "actors/draft/work/proposal_outlet.hpp"
#include "actors/draft/work/skip_set_jobs.hpp"
#include "actors/draft/work/source_jobs.hpp"
#include "actors/protocol/inbox.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

class DraftWork : public Actor {
public:
    using Handles = Kinds<msg::Verdict, msg::Stop, msg::Price, msg::OwnTokens>;

    DraftWork(const DraftWork&) = delete;
    DraftWork& operator=(const DraftWork&) = delete;

    void on_start(StageContext& context) final;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) final;
    void on_control(StageId from, const control::Message& message) final;
    void on_room(StageId to) final;
    void on_peer(StageId peer, PeerChange change) final;

    Status handle(StageId from, const msg::Verdict& verdict);
    Status handle(StageId from, const msg::Stop& stop);
    Status handle(StageId from, const msg::Price& price);
    Status handle(StageId from, const msg::OwnTokens& own);

protected:
    using RequestPtr = DraftHost::RequestPtr;

    DraftWork(DraftPlan plan, DraftTools tools);

    /// The request that a proposal is about; nullptr if the message is stale, early or unknown.
    [[nodiscard]] Result<RequestPtr> admit(StageId from, const msg::Proposal& proposal);
    /// Continues a request whose tree was changed by a message.
    void continue_request(const RequestPtr& request);
    /// Submits the next job, if none runs.
    void pump();

    DraftHost host_;
    Inbox inbox_{AttemptFilter::Overflow::DropOldest};
    ProposalOutlet outlet_{host_};
    SkipSetJobs skip_sets_{host_};

private:
    Status begin(const control::Begin& begin);
    void follow(const msg::Verdict& verdict);
    void ask_again(const RequestPtr& request, const msg::Verdict& verdict);
    [[nodiscard]] bool catch_up(const control::Begin& begin, const BeginPayload& spec);
    void stop(RequestId request);

    GrammarStore grammars_;
    GrowthSteps steps_{host_, outlet_};
    ModelPasses passes_{host_, outlet_, steps_, skip_sets_};
    SourceJobs sources_{host_, steps_};
    bool busy_ = false;  // a job runs
};

/// The error of a message that a speculative stage does not expect from its sender.
[[nodiscard]] Error unexpected(StageId from, const std::string& what);

}  // namespace paceline
