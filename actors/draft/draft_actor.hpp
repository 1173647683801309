// DraftActor: the stage "draft": proposes how each request's text goes on (draft_work.hpp).
// Handles: Begin, Verdict, Stop; Proposal from the exit (candidates), and from Correct (its
// branches, one of which the target may have taken: then Draft goes on below it).
// TensorNote from each segment (what its layers made of the last accepted token:
// layer_chooser.hpp), or from the last one (an EAGLE draft's features: DraftFeatures::receive).
// Emits: Proposal to the first segment; to Correct the trunk (work/trunk_sender.hpp).
#pragma once

#include <optional>

#include "actors/draft/draft_work.hpp"

namespace paceline {

class DraftActor final : public DraftWork {
public:
    using Handles = Kinds<msg::Proposal, msg::TensorNote>;

    /// `correct`: grows the alternatives; without it this stage grows them too, if its rule says
    /// so.
    DraftActor(DraftPlan plan, DraftTools tools, std::optional<StageId> correct = {});

    using DraftWork::handle;
    Status handle(StageId from, const msg::Proposal& proposal);
    Status handle(StageId from, const msg::TensorNote& note);

    /// How often the layers were chosen anew.
    [[nodiscard]] std::uint64_t layer_choices() const { return skip_sets_.choices(); }
    /// Trials of the search for a skip set.
    [[nodiscard]] std::uint64_t trials() const { return skip_sets_.trials(); }

private:
    [[nodiscard]] bool expects(StageId from, msg::TensorRole role);
    Status take(StageId from, const msg::TensorNote& note, TensorConsumer& tensors);

    std::optional<StageId> correct_;
};

}  // namespace paceline
