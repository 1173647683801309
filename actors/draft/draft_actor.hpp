// DraftActor: proposes how each request's text goes on. Draft, Correct, or both in one.
// Receives: Begin, Verdict, Stop; Proposal from the exit (names), as Correct from Draft (its
// trunk) with TensorNotes (its keys and values), as Draft from Correct (its branches).
// Sends: Proposal to the first target segment; as Draft or Correct also to the other one, as Draft
// with TensorNotes.
//
//             Begin                    all said that there is to say
//   [absent] -------> [Growing] ------------------------------------> [Waiting]
//       ^                 | ^                                            | |
//       |                 | |    Verdict; an exit's names                | |
//       |                 | +--------------------------------------------+ |
//       |                 v                                                v
//       +---------------------------------------------------------------- (same)
//          Stop; a Verdict that ends the answer, or starts behind a gap;
//          the first segment or the judge was lost
//
// What Growing means depends on the pace (decoding/growth.hpp). One job at a time: a pass of the
// model for all requests that want one, or a source's step for one request; messages are handled
// in between. A Verdict re-roots the tree at once, and what a running job says of nodes that are
// gone by then is dropped. A proposal that finds no room is lost, but the newest one follows when
// there is room again.
// Losing this actor changes no attempt: what it says is only a hint. Back again, it may have
// missed verdicts: where one is missing it says nothing more of that request until its next Begin.
// Threads: all calls come from the stage's loop; a job touches the model, or one source. Owns the
// model, and one source per request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "actors/draft/draft_plan.hpp"
#include "actors/draft/draft_source.hpp"
#include "actors/draft/draft_work.hpp"
#include "actors/protocol/inbox_gate.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

struct DraftFigures {
    std::uint64_t proposals = 0;  // sent
    std::uint64_t tokens = 0;     // in them
    std::uint64_t dropped = 0;    // not sent: the channel was full
    std::uint64_t outdated = 0;   // computed for nodes that were gone meanwhile
    std::uint64_t kv_sent = 0;    // tokens whose keys and values went to Correct
    std::uint64_t kv_taken = 0;   // that came from Draft and were used
};

class DraftActor final : public Actor {
public:
    DraftActor(DraftPlan plan, DraftTools tools);
    ~DraftActor() override;
    DraftActor(const DraftActor&) = delete;
    DraftActor& operator=(const DraftActor&) = delete;

    void on_start(StageContext& context) override { context_ = &context; }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_room(StageId to) override;
    void on_peer(StageId peer, PeerChange change) override;

    [[nodiscard]] const DraftFigures& figures() const { return figures_; }

private:
    using WorkPtr = std::shared_ptr<DraftWork>;
    struct Pass {
        std::vector<WorkPtr> works;
        CancelToken cancel;
        Micros begun{0};
        bool given_up = false;  // by this actor; else a cancelled one is of a void attempt
    };

    // Messages: draft_actor.cpp
    Status begin(const control::Begin& begin);
    Status receive(StageId from, std::uint16_t kind, std::span<const std::byte> bytes);
    Status receive_verdict(StageId from, std::span<const std::byte> bytes);
    Status receive_stop(StageId from, std::span<const std::byte> bytes);
    Status receive_proposal(StageId from, std::span<const std::byte> bytes);
    Status receive_note(StageId from, std::span<const std::byte> bytes);
    Status take_note(StageId from, const msg::TensorNote& note);
    Result<Age> admit(StageId from,
                      std::uint16_t kind,
                      const msg::Route& route,
                      std::span<const std::byte> bytes);
    Status receive_due();
    void follow(const msg::Verdict& verdict);
    void stop(RequestId request);
    [[nodiscard]] WorkPtr find(const msg::Route& route) const;
    [[nodiscard]] bool current(const WorkPtr& work) const;

    // What follows from them: draft_run.cpp
    void go_on(const WorkPtr& work);
    void advance(const WorkPtr& work);
    bool ask_source(const WorkPtr& work, GuessId behind, std::int32_t tokens);
    void wait_for_names(const WorkPtr& work);
    void pump();
    [[nodiscard]] bool lags(const DraftWork& work) const;
    bool start_pass();
    bool start_source();
    void end_pass(const std::shared_ptr<Pass>& pass, RunOutcome outcome);
    void submit_source(const WorkPtr& work);
    void send(const WorkPtr& work, msg::ProposalState state);
    void tell_correct(const WorkPtr& work, std::span<const GuessId> computed);
    void send_kv(const WorkPtr& work, const GuessNode& node);
    bool flush_notes();
    [[nodiscard]] std::vector<WorkPtr> in_turn();

    StageContext* context_ = nullptr;
    DraftPlan plan_;
    DraftTools tools_;
    std::map<RequestId, WorkPtr> works_;
    RequestId served_;  // the last one that a job was for
    std::shared_ptr<Pass> pass_;
    bool busy_ = false;                  // a job runs
    std::deque<msg::TensorNote> notes_;  // published, but found no room
    InboxGate gate_{InboxGate::Overflow::DropOldest};
    DraftFigures figures_;
};

}  // namespace paceline
