// CorrectActor: the stage "correct": prepares continuations below the candidates that an exit
// sends, while the target still verifies (draft_work.hpp).
// Handles: Begin, Verdict, Stop; Proposal from the exit (candidates) and from Draft (the trunk);
// TensorNote from Draft (keys and values of the trunk).
// Emits: Proposal to the first segment, and a copy to Draft.
#pragma once

#include <cstdint>

#include "actors/draft/draft_work.hpp"

namespace paceline {

class CorrectActor final : public DraftWork {
public:
    using Handles = Kinds<msg::Proposal, msg::TensorNote>;

    CorrectActor(DraftPlan plan, DraftTools tools, StageId draft);

    using DraftWork::handle;
    Status handle(StageId from, const msg::Proposal& proposal);
    Status handle(StageId from, const msg::TensorNote& note);

    /// Rows of keys and values that came from Draft and were used.
    [[nodiscard]] std::uint64_t kv_rows_taken() const { return kv_rows_taken_; }

private:
    Status take(StageId from, const msg::TensorNote& note, TensorConsumer* tensors);

    StageId draft_;
    std::uint64_t kv_rows_taken_ = 0;
};

}  // namespace paceline
