// FeatureSender: the role of the last segment that sends an EAGLE draft the target's features:
// hidden states after the last layer, or after some layers of the segment, of prompt rows and of
// accepted rows.
// Emits: TensorNote (TensorRole::Features) to the draft.
//
//     prepare()         a run starts: which rows of it are a prompt's
//     send_prompts()    it has ended: their states, before the verdict that follows
//     send_accepted()   a part was verified: the states of its root and of the accepted rows,
//                       before its verdict
//
// Row i of a note is the state at first_position + i. Nothing is sent of requests that do not
// speculate. Where the pool has no free slot the rows are dropped and counted: the draft reads its
// own output in their place. A note that finds the ring full is sent
// when there is room again.
// Owns the notes that wait, and the states after layers. Threads: the actor's loop; the run's job
// writes to the states that prepare() has made room for.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/verifier.hpp"
#include "model/backend.hpp"

namespace paceline {

struct FeatureOptions {
    StageId draft;  // who gets them
    std::vector<int> layers =
        {};  // states after so many layers of the target, ascending; empty: after the last one
};

class FeatureSender {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<msg::TensorNote>;

    /// Borrows host and backend. Precondition: the segment has the layers.
    FeatureSender(SegmentHost& host, Backend& backend, FeatureOptions options);

    void prepare(SegmentRun& run);
    /// Of prompts that were not stopped meanwhile.
    void send_prompts(const SegmentRun& run);
    void send_accepted(const VerifyPart& verified, const RunPart& part);
    /// There may be room again at the draft.
    void flush();
    /// The channel to the draft is gone, and with it the tensors that notes name.
    void forget() { waiting_.clear(); }

private:
    struct PromptRows {
        const RequestState* state;
        Position base;
        std::size_t first;  // row of the run
        std::size_t count;
    };
    [[nodiscard]] bool add_states(std::size_t row, std::vector<RowSource>& states) const;
    void send(const RequestState& state, Position first, std::span<const RowSource> states);

    SegmentHost& host_;
    Backend& backend_;
    FeatureOptions options_;
    SublayerMask others_;                  // the sub-layers after which no state is read
    std::vector<PromptRows> prompts_;      // of the run
    ConstHiddenRows hidden_;               // of the run, [rows, dim]
    std::vector<bool> known_;              // by row of the run
    std::vector<float> states_;            // of the run, [rows, layers, dim]
    std::deque<msg::TensorNote> waiting_;  // published, but found no room
};

}  // namespace paceline
