// ResidualTap: the role of a segment that sends a draft the residual of the last accepted token
// after each of its layers. CLaSp's programme selects from them the layers that the draft skips.
// Emits: TensorNote (TensorRole::Tap) to the draft.
//
//     prepare()    a run of a batch that is due (every `interval` batches of a request; the
//                  segments count alike): up to kRows of its verify rows keep their residuals
//     follow()     the verdict on that batch: the row whose logits gave its last token is sent
//
// One batch at a time, the newest. If there is no room the tap is dropped, and the draft keeps its
// layers. Owns the residuals. Threads: the actor's loop; the run's job writes to the rows that
// prepare() has chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "model/backend.hpp"

namespace paceline {

struct TapOptions {
    StageId draft;                // who gets them
    std::uint32_t interval = 32;  // batches of a request between two taps
};

class ResidualTap {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<msg::TensorNote>;
    static constexpr std::size_t kRows = 16;  // a longer tree's last rows are seldom accepted

    /// Borrows host and backend.
    ResidualTap(SegmentHost& host, Backend& backend, TapOptions options);

    void prepare(SegmentRun& run);
    void follow(const msg::Verdict& verdict);
    /// There may be room again at the draft.
    void flush();
    /// The channel to the draft is gone, and with it the tensor that a note names.
    void forget() { waiting_.reset(); }

private:
    struct Kept {
        NodeId node;
        Position position;
    };
    void send(const msg::Verdict& verdict, std::size_t row);

    SegmentHost& host_;
    Backend& backend_;
    TapOptions options_;
    // Of the newest batch that was due.
    RequestId request_;
    Attempt attempt_;
    BatchId batch_;
    std::vector<Kept> kept_;
    std::vector<float> residuals_;            // [kept, sub-layers of the segment, dim]
    std::optional<msg::TensorNote> waiting_;  // published, but found no room
};

}  // namespace paceline
