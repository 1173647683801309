// SkipProgramme: CLaSp's programme as the job of a target that drafts for itself: the residuals of
// a text's last accepted token, and the set of layers to skip that follows from them
// (layer_skip_dp.hpp). Used by SkipOptimiser.
//
//     take_residuals() -> due() -> run() (job) -> finish()
//
// The text may go on after the residuals, in a round that was not drafted: then no job is due.
// Borrows options and backend. Threads: the actor's loop; run() is the job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/protocol/request_state.hpp"
#include "actors/self_draft/layer_skip_dp.hpp"
#include "actors/self_draft/self_draft_options.hpp"
#include "model/backend.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

class SkipProgramme {
public:
    SkipProgramme(const SelfDraftOptions& options, Backend& backend);

    /// As SkipOptimiser.
    void take_residuals(const RequestState& state,
                        Position position,
                        std::span<const float> residuals);
    /// Whether it can run on the text of `state`.
    [[nodiscard]] bool due(const RequestState& state) const;
    /// What the job is to be submitted as. Precondition: it is due.
    [[nodiscard]] JobLabel label(const RequestState& state) const;
    /// `scratch`: a slot for each row of a layer's call.
    RunOutcome run(const RequestState& state, std::span<const KvSlot> scratch);
    /// The set that follows; nothing if the job was cancelled. The residuals are used up.
    [[nodiscard]] std::optional<SkipSet> finish(RunOutcome outcome);

    /// Sub-layers that rows of jobs have run since the last call. Not while a job runs.
    [[nodiscard]] std::uint64_t take_sublayers() { return std::exchange(sublayers_, 0); }

private:
    LayerSkipDpOptions options_;
    Backend& backend_;
    std::vector<float> stack_;          // [layers + 1, dim]; empty: none
    std::optional<Position> position_;  // of the row that it is of,
    RequestId request_;                 // in the text of this request
    Attempt attempt_;
    std::optional<SkipSet> chosen_;
    std::uint64_t sublayers_ = 0;
};

}  // namespace paceline
