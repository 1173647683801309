// FinalVerify: the role of a target's last segment: decides which candidates of a run are accepted.
// Handles: no message; its rows come from the layers of its own segment.   Emits: Verdict.
//
//     prepare()      a run starts: which of its parts are verified, and from what
//     run_layers()   in the run's job: layers, and the target's tokens where the device draws them
//     verify()       in the run's job: the accepted path of each part (verifier.hpp)
//     announce()     the run has ended: a Verdict per part
//
// Owns what it verifies in the current run, and the memory that the last layer writes to.
// Threads: the actor's loop, and between prepare() and the end of the run its job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/verifier.hpp"

namespace paceline {

/// The receivers of verdicts. A verdict to a speculative stage whose channel is full is dropped; the stage
/// finds the gap and asks the conductor for the Begin again.
struct VerdictReceivers {
    std::vector<StageId> all = {};          // not the last segment itself
    std::vector<StageId> speculative = {};  // those of them that are: draft and correct
};

class FinalVerify {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<msg::Verdict>;

    /// Borrows host and backend; the host's limits say how large a batch may be.
    FinalVerify(SegmentHost& host, Backend& backend, VerifyOptions options, VerdictReceivers to);

    /// Where the layers of a run work: hidden states stay where the backend computes.
    [[nodiscard]] HiddenRows memory() const { return hidden_.rows; }

    /// Errors: Protocol if verify rows come without their root.
    Status prepare(const SegmentRun& run);
    /// Rows whose head is computed in the run's job, as far as is known.
    [[nodiscard]] std::uint32_t heads() const;
    /// `keep_hidden`: the hidden states are read after the run as well.
    [[nodiscard]] RunOutcome run_layers(SegmentRun& run, bool keep_hidden);
    void verify();

    /// The verify parts of the run, after verify() with their results.
    [[nodiscard]] std::span<const VerifyPart> verified() const { return parts_; }
    /// Sends the verdict about a part, and publishes its last token for the jobs of other segments.
    msg::Verdict announce(const VerifyPart& verified, const RunPart& part);

private:
    void draw_with_layers(const SegmentRun& run);
    void send(const msg::Verdict& verdict);

    SegmentHost& host_;
    Backend& backend_;
    VerifyOptions options_;
    VerdictReceivers to_;
    Verifier verifier_;
    RowMemory hidden_;  // [rows of the largest batch, dim]
    std::vector<VerifyPart> parts_;
    // Of each row of the run, where the device draws the target's tokens with the layers; else empty.
    std::vector<DrawJob> jobs_;
    std::vector<std::optional<TokenId>> drawn_;
};

}  // namespace paceline
