// LayerChooser: which layers a draft leaves out, chosen anew by CLaSp's programme from the residuals that
// the target's segments send of the last accepted token (self_draft/layer_programme.hpp).
//
//     take()      a segment's part of the stack; the newest position counts
//     finish()    the set that the model leaves out from now on
//
//     [Collecting] -- all layers are there --> [Complete] -- the text is read up to there --> [Running] (job)
//         ^                                                                                      |
//         +--------------------------------------------------------------------------------------+
//
// The job runs each layer once, on scratch slots of the model, and reads the text's keys: the text must be
// read with all layers (DraftModelOptions::whole_text), whatever was left out before. A part that is
// lost costs one choice.
// Borrows the model. Threads: the actor's loop; run() is the job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/draft/draft_model.hpp"
#include "actors/self_draft/layer_programme.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class LayerChooser {
public:
    /// The model has reserve_scratch(options.skip + 1).
    LayerChooser(DraftModel& model, const LayerProgrammeOptions& options);

    /// The note's residuals, where they lie. Errors: Protocol for layers or sizes that the model has not.
    Status take(const msg::TensorNote& note, ConstHiddenRows residuals);
    /// Of which text the stack is that is complete; nothing: none is.
    [[nodiscard]] std::optional<msg::Route> complete() const;
    /// Whether `text` is known and read so far that the job can run.
    [[nodiscard]] bool can_run(const DraftText& text) const;
    /// The stack is of no use any more.
    void drop() { missing_ = -1; }

    /// Before the job: it keeps `text`.
    void prepare(std::shared_ptr<DraftText> text);
    RunOutcome run();
    /// Whether the model leaves out other layers from now on.
    bool finish(RunOutcome outcome);

    [[nodiscard]] Position position() const { return position_; }
    [[nodiscard]] int rows() const { return options_.skip + 1; }
    [[nodiscard]] int layers() const { return options_.layers; }
    /// Choices that were made.
    [[nodiscard]] std::uint64_t made() const { return made_; }

private:
    DraftModel& model_;
    LayerProgrammeOptions options_;
    msg::Route route_{};
    Position position_ = 0;
    int missing_ = -1;              // layers; -1: there is no stack
    std::vector<bool> there_;       // by layer
    std::vector<float> residuals_;  // [layers + 1, dim]: after each of them; the first is not known
    // The job's: parts of the next stack may come before it has run.
    std::shared_ptr<DraftText> text_;
    Position at_ = 0;
    std::vector<float> stack_;
    std::optional<SkipSet> chosen_;
    std::uint64_t made_ = 0;
};

}  // namespace paceline
