// The job of DraftModel: the layers of a pass and its heads, or one layer alone.
#include <utility>

#include "actors/draft/draft_model.hpp"
#include "actors/self_draft/scratch_rows.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

RunOutcome DraftModel::run(const CancelToken* cancel) {
    if (head_.draws_with_layers(heads_, rows_.size()))
        return head_.run_and_draw(rows_, heads_, cancel);
    const HiddenRows hidden = backend_.rows_of(hidden_, rows_.size());
    if (backend_.run_layers(rows_, hidden, cancel) == RunOutcome::Cancelled) {
        return RunOutcome::Cancelled;
    }
    head_.give_candidates(hidden_, heads_);
    return RunOutcome::Done;
}

// ---- One layer alone

void DraftModel::reserve_scratch(std::int32_t rows) {
    scratch_slots_.emplace(RequestSlots::make(pool_->pages, rows).value());
    scratch_assigned_ = allocate_scratch(*scratch_slots_, rows);
}

bool DraftModel::has_read(const DraftText& text, Position position) const {
    return text.cache && text.cache->begin == 0 && text.cache->cached() >= position &&
           position < static_cast<Position>(text.tokens.size());
}

RunOutcome DraftModel::run_layer(const DraftText& text,
                                 Position position,
                                 int layer,
                                 std::span<float> states) {
    return run_one_layer(backend_, layer, text.cache->slots.committed(), position,
                         scratch_assigned_, states);
}

void DraftModel::set_skip(const SkipSet& skip) {
    PACE_CHECK(!running_ && options_.whole_text, "another set in the middle, or for a text too");
    options_.skip = skip;
    mask_ = skip.mask();
}

}  // namespace paceline
