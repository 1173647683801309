// FinalVerify: the role of a target's last segment: decides which candidates of a run are accepted.
// Handles: no message; its rows come from the layers of its own segment.   Emits: Verdict, Scores,
// OwnTokens.
//
//     prepare()      a run starts: which of its parts are verified, and from what
//     VerifyJob      in the run's job: layers, and the accepted path of each part
//     announce()     the run has ended: a Verdict per part, with the Scores of its tokens before
//                    it, and OwnTokens of its observed rows for drafts
//     send_scores()  likewise of prompts
//
// Owns its part of the current run's job, and the memory that the last layer writes to.
// Threads: the actor's loop; the VerifyJob is the job's while a run is submitted.
#pragma once

#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/verify_job.hpp"

namespace paceline {

/// The receivers of verdicts. A verdict to a speculative stage whose channel is full is dropped;
/// the stage finds the gap and asks the conductor for the Begin again.
struct VerdictReceivers {
    std::vector<StageId> all = {};          // not the last segment itself
    std::vector<StageId> speculative = {};  // those of them that are: draft and correct
};

class FinalVerify {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<msg::Verdict, msg::Scores, msg::OwnTokens>;

    /// Borrows host and backend; the host's limits say how large a batch may be.
    FinalVerify(SegmentHost& host, Backend& backend, VerifyOptions options, VerdictReceivers to);

    /// Where the layers of a run work: hidden states stay where the backend computes.
    [[nodiscard]] HiddenRows memory() const { return hidden_.rows; }

    /// Errors: Protocol if verify rows come without their root.
    Status prepare(const SegmentRun& run);
    [[nodiscard]] VerifyJob& job() { return job_; }
    [[nodiscard]] const VerifyJob& job() const { return job_; }
    /// Sends the verdict about a part, and publishes its last token for the jobs of other segments.
    /// `cost`: of its batch.
    msg::Verdict announce(const VerifyPart& verified,
                          const RunPart& part,
                          const msg::BatchCost& cost);
    /// Of the run's prompts, to the conductor. Stopped ones are left out.
    void send_scores(const SegmentRun& run);

private:
    void draw_with_layers(const SegmentRun& run);
    void add_prompt(const SegmentRun& run, const RunPart& part);
    void send(const msg::Verdict& verdict, const msg::OwnTokens& own);
    void send(const msg::Route& route, Position first, std::span<const TokenScores> scores);

    SegmentHost& host_;
    Backend& backend_;
    VerdictReceivers to_;
    VerifyJob job_;
    RowMemory hidden_;  // [rows of the largest batch, dim]
};

}  // namespace paceline
