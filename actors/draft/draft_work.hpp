// DraftWork: what the two speculative stages, DraftActor and CorrectActor, have in common: the
// requests, the jobs that grow their trees, and the proposals to the first segment.
// Handles: Begin, Verdict, Stop, Price, OwnTokens.   Emits: Proposal, Draw.
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
// How a request grows depends on the pace (decoding/growth.hpp). One job at a time: a pass of the
// model for all requests that want one, or a source's step for one request; messages are handled
// in between. A Verdict re-roots the tree at once, and candidates of a running job below nodes that
// were dropped meanwhile are dropped too. A proposal that finds the channel full is lost, but the
// newest one is sent when there is room again.
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
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/adaptive_stops.hpp"
#include "actors/decoding/grammar/grammar_store.hpp"
#include "actors/draft/draft_plan.hpp"
#include "actors/draft/draft_request.hpp"
#include "actors/protocol/inbox.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

class LayerChooser;
class SetSearcher;
class TrunkSender;

class DraftWork : public Actor {
public:
    using Handles = Kinds<msg::Verdict, msg::Stop, msg::Price, msg::OwnTokens>;
    using Emits = Kinds<msg::Proposal, msg::Draw>;

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) final;
    void on_control(StageId from, const control::Message& message) final;
    void on_room(StageId to) override;
    void on_peer(StageId peer, PeerChange change) override;

    Status handle(StageId from, const msg::Verdict& verdict);
    Status handle(StageId from, const msg::Stop& stop);
    Status handle(StageId from, const msg::Price& price);
    Status handle(StageId from, const msg::OwnTokens& own);

protected:
    using RequestPtr = std::shared_ptr<DraftRequest>;

    DraftWork(DraftPlan plan, DraftTools tools);

    /// The role that also sends the trunk and each proposal to Correct. Before on_start().
    void attach(TrunkSender& trunk) { trunk_ = &trunk; }
    void attach(LayerChooser& choice) { choice_ = &choice; }
    void attach(SetSearcher& search) { search_ = &search; }
    void copy_proposals_to(StageId stage) { copies_to_ = stage; }

    /// The request that a proposal is about; nullptr if the message is stale, early or unknown.
    [[nodiscard]] Result<RequestPtr> admit(StageId from, const msg::Proposal& proposal);
    [[nodiscard]] RequestPtr find(const msg::Route& route) const;
    /// Continues a request whose tree was changed by a message.
    void continue_request(const RequestPtr& request);

    /// Submits the next job, if one was waiting for this call.
    void go_on_with_jobs() { pump(); }

    [[nodiscard]] const DraftPlan& plan() const { return plan_; }
    [[nodiscard]] const std::optional<LayerSkipDpOptions>& programme() const {
        return tools_.programme;
    }
    [[nodiscard]] const std::optional<SearchTrialOptions>& search() const { return tools_.search; }
    [[nodiscard]] DraftModel* model() const { return tools_.model.get(); }
    [[nodiscard]] StageContext& context() const { return *context_; }
    Inbox inbox_{AttemptFilter::Overflow::DropOldest};

private:
    struct Pass {
        std::vector<RequestPtr> requests;
        CancelToken cancel;
        Micros begun{0};
        bool given_up = false;  // cancelled by this actor; otherwise with its attempt
    };
    /// A trial of the search for a skip set.
    struct Trial {
        RequestPtr request;
        CancelToken cancel;
        Micros begun{0};
    };

    // Messages: draft_work.cpp
    Status begin(const control::Begin& begin);
    void follow(const msg::Verdict& verdict);
    void ask_again(const RequestPtr& request, const msg::Verdict& verdict);
    [[nodiscard]] bool catch_up(const control::Begin& begin, const BeginPayload& spec);
    void stop(RequestId request);
    [[nodiscard]] bool current(const RequestPtr& request) const;

    // Jobs and proposals: draft_jobs.cpp
    void advance(const RequestPtr& request);
    bool ask_source(const RequestPtr& request, DraftNodeId behind, std::int32_t tokens);
    void wait_for_candidates(const RequestPtr& request);
    void pump();
    [[nodiscard]] bool lags(const DraftRequest& request) const;
    bool start_pass();
    void end_pass(const std::shared_ptr<Pass>& pass, RunOutcome outcome);
    bool start_source();
    bool start_choice();
    bool start_trial();
    void end_trial(const std::shared_ptr<Trial>& trial, JobOutcome outcome);
    void skip_set_changed();
    void show_skip_set();
    void submit_source(const RequestPtr& request);
    void send(const RequestPtr& request, msg::ProposalState state);
    [[nodiscard]] std::vector<RequestPtr> longest_waiting_first();

    StageContext* context_ = nullptr;
    DraftPlan plan_;
    DraftTools tools_;
    AdaptiveStops stops_;
    DraftAccount account_;
    TrunkSender* trunk_ = nullptr;
    LayerChooser* choice_ = nullptr;
    SetSearcher* search_ = nullptr;
    std::optional<StageId> copies_to_;
    std::map<RequestId, RequestPtr> requests_;
    GrammarStore grammars_;
    RequestId served_;  // the last one that a job was for
    std::shared_ptr<Pass> pass_;
    std::shared_ptr<Trial> trial_;
    bool busy_ = false;  // a job runs
};

/// The error of a message that a speculative stage does not expect from its sender.
[[nodiscard]] Error unexpected(StageId from, const std::string& what);

}  // namespace paceline
