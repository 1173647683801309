// LayerChooser: selects the layers that a draft skips with CLaSp's programme, from the residuals of
// the last accepted token that the target's segments send (self_draft/layer_skip_dp.hpp).
//
//     taps()      takes the segments' parts of the stack of residuals (tap_stack.hpp)
//     prepare()   the stack is complete, and the text read up to there
//     run()       job
//     finish()    sets the layers that the model skips from now on
//
// The job runs each layer once, on scratch slots of the model, and reads the text's keys, so the
// text must run through all layers (DraftModelOptions::whole_text). If a part is lost, this choice
// is left out. Borrows the model. Threads: the actor's loop; run() is the job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_scratch.hpp"
#include "actors/draft/tap_stack.hpp"
#include "actors/self_draft/layer_skip_dp.hpp"

namespace paceline {

class LayerChooser {
public:
    /// No text of the model is open; its backend has rows() slots for scratch.
    LayerChooser(DraftModel& model, const LayerSkipDpOptions& options);

    [[nodiscard]] TapStack& taps() { return taps_; }
    /// Whether `text` is known and read so far that the job can run.
    [[nodiscard]] bool can_run(const DraftText& text) const;

    /// Before the job: it keeps `text`, and the stack begins anew.
    void prepare(std::shared_ptr<DraftText> text);
    RunOutcome run();
    /// Whether the set of skipped layers has changed.
    bool finish(RunOutcome outcome);

    /// Of the job that was prepared last.
    [[nodiscard]] Position position() const { return at_; }
    [[nodiscard]] int rows() const { return options_.skip + 1; }
    [[nodiscard]] int layers() const { return options_.layers; }
    /// Choices that were made.
    [[nodiscard]] std::uint64_t made() const { return made_; }

private:
    DraftModel& model_;
    LayerSkipDpOptions options_;
    DraftScratch scratch_;
    TapStack taps_;
    // The job's: parts of the next stack may come before it has run.
    std::shared_ptr<DraftText> text_;
    Position at_ = 0;
    std::vector<float> stack_;
    std::optional<SkipSet> chosen_;
    std::uint64_t made_ = 0;
};

}  // namespace paceline
