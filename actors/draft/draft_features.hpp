// DraftFeatures: the target's features of committed text that an EAGLE draft reads beside tokens
// (Backend::feature_slots()), until a pass puts them into the slots of their tokens.
//
//     receive()    features of a text; one that does not come is the draft's own output
//     place()      before a pass: what is known of the tokens in its slots
//     finish()     after it: what was placed is forgotten, unless the pass was cancelled
//
// At most kFeaturesKeptMax wait, over all texts. Borrows the backend. Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/draft/draft_rows.hpp"
#include "actors/draft/draft_text.hpp"
#include "model/backend.hpp"
#include "model/feature_slots.hpp"

namespace paceline {

class DraftFeatures {
public:
    /// `expected`: the draft is sent the target's features.
    DraftFeatures(Backend& backend, bool expected);

    [[nodiscard]] bool expected() const { return expected_; }
    /// The target's features of `text` from `first` on, [positions, width], on the host or on a
    /// device that the backend reaches. Later ones of a
    /// position take the place of earlier ones; those outside the text's context are dropped, and
    /// the text's oldest where kFeaturesKeptMax wait.
    /// False: this model expects none, or they are of another width.
    bool receive(DraftText& text, Position first, ConstHiddenRows rows, std::size_t width);
    /// Where so many tokens before the root have no feature that reading them costs more than it
    /// is worth: the last of those that are not to be read.
    [[nodiscard]] std::optional<Position> not_worth_reading(const DraftText& text) const;

    /// Slots that these rows have taken lose what they had of other tokens, and get what is known
    /// of theirs.
    void place(std::span<const PassRow> rows);
    void finish(RunOutcome outcome);

private:
    void place(const std::shared_ptr<DraftText>& text);
    [[nodiscard]] std::int64_t kept_count() const { return counted_.use_count() - 1; }

    Backend& backend_;
    FeatureSlots* slots_;  // nullptr: rows read none
    bool expected_;
    // Each feature that a text keeps holds it: its further holders are their number.
    std::shared_ptr<const int> counted_ = std::make_shared<const int>();
    std::vector<std::pair<std::shared_ptr<DraftText>, Position>> placed_;  // by this pass
    std::vector<float> copied_;                                            // of a device's memory
};

}  // namespace paceline
