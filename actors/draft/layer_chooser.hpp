// LayerChooser: selects the layers that a draft skips with CLaSp's programme, from the residuals of
// the last accepted token that the target's segments send (self_draft/layer_skip_dp.hpp).
//
//     take()      a segment's part of the stack of residuals; the newest position counts
//     finish()    sets the layers that the model skips from now on
//
//     [Collecting] -- all layers are there --> [Complete] -- text read up to there --> [Running]
//         ^                                                                              (job) |
//         +------------------------------------------------------------------------------------+
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
#include "actors/self_draft/layer_skip_dp.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class LayerChooser {
public:
    /// No text of the model is open; its backend has rows() slots for scratch.
    LayerChooser(DraftModel& model, const LayerSkipDpOptions& options);

    /// The note's residuals, read in place. Errors: Protocol for layers or sizes that the model
    /// does not have.
    Status take(const msg::TensorNote& note, ConstHiddenRows residuals);
    /// The request of a complete stack; nothing if no stack is complete.
    [[nodiscard]] std::optional<msg::Route> complete() const;
    /// Whether `text` is known and read so far that the job can run.
    [[nodiscard]] bool can_run(const DraftText& text) const;
    /// Drops the stack.
    void drop() { missing_ = -1; }

    /// Before the job: it keeps `text`.
    void prepare(std::shared_ptr<DraftText> text);
    RunOutcome run();
    /// Whether the set of skipped layers has changed.
    bool finish(RunOutcome outcome);

    [[nodiscard]] Position position() const { return position_; }
    [[nodiscard]] int rows() const { return options_.skip + 1; }
    [[nodiscard]] int layers() const { return options_.layers; }
    /// Choices that were made.
    [[nodiscard]] std::uint64_t made() const { return made_; }

private:
    DraftModel& model_;
    LayerSkipDpOptions options_;
    DraftScratch scratch_;
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
