// DraftActor: proposes how each request's text goes on.
// Receives: Begin, Verdict, Stop.   Sends: Proposal, to the first target segment.
//
//             Begin                    proposal sent (or dropped: channel full)
//   [absent] -------> [Drafting] ------------------------------------> [Waiting]
//       ^                 | ^                                            | |
//       |                 | |    Verdict: the text goes on               | |
//       |                 | +--------------------------------------------+ |
//       |                 v                                                v
//       +---------------------------------------------------------------- (same)
//          Stop; a Verdict that ends the answer, or starts behind a gap;
//          the first segment or the judge was lost
//
// A Verdict while Drafting raises the job's cancel token; the job's result is dropped when it
// comes, and drafting starts again from the new root. Losing this actor changes no attempt:
// what it says is only a hint. Back again, it may have missed verdicts: where one is missing it
// says nothing more of that request until its next Begin.
// Threads: all calls come from the stage's loop. Owns one DraftSource per request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "actors/draft_source.hpp"
#include "actors/inbox_gate.hpp"
#include "ipc/base/result.hpp"
#include "ipc/messages.hpp"
#include "runtime/actor.hpp"

namespace paceline {

struct DraftPlan {
    StageId first_segment;  // who gets the proposals
    StageId judge;          // the last segment: whose verdicts count
    int vocab_size = 0;
};

struct DraftFigures {
    std::uint64_t proposals = 0;  // sent
    std::uint64_t tokens = 0;     // in them
    std::uint64_t dropped = 0;    // not sent: the channel was full
    std::uint64_t outdated = 0;   // computed for a root that had gone on meanwhile
};

class DraftActor final : public Actor {
public:
    DraftActor(DraftPlan plan, DraftSourceFactory sources);

    void on_start(StageContext& context) override { context_ = &context; }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_peer(StageId peer, PeerChange change) override;

    [[nodiscard]] const DraftFigures& figures() const { return figures_; }

private:
    enum class State : std::uint8_t { Drafting, Waiting };
    struct Work {
        RequestId request;
        Attempt attempt;
        State state = State::Waiting;
        std::int32_t gamma = 0;
        FinishRule finish;
        Position root_position = 0;
        TokenId root_token = 0;
        std::unique_ptr<DraftSource> source;
        std::vector<TokenId> uncommitted;  // came while a job had the source
        bool source_busy = false;          // a job has it
        CancelToken cancel;
    };

    Status begin(const control::Begin& begin);
    Status receive(StageId from, std::uint16_t kind, std::span<const std::byte> bytes);
    Result<Age> admit(StageId from,
                      std::uint16_t kind,
                      const msg::Route& route,
                      std::span<const std::byte> bytes);
    Status receive_due();
    void follow(const msg::Verdict& verdict);
    void stop(RequestId request);
    void draft(const std::shared_ptr<Work>& work);
    void submit_job(const std::shared_ptr<Work>& work, std::int32_t gamma);
    void finish_job(const std::shared_ptr<Work>& work, Position root, std::vector<TokenId> tokens);
    void send_proposal(const Work& work, std::span<const TokenId> tokens);
    [[nodiscard]] std::shared_ptr<Work> find(const msg::Route& route) const;

    StageContext* context_ = nullptr;
    DraftPlan plan_;
    DraftSourceFactory sources_;
    std::map<RequestId, std::shared_ptr<Work>> works_;
    InboxGate gate_{InboxGate::Overflow::DropOldest};
    DraftFigures figures_;
};

}  // namespace paceline
