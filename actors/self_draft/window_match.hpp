// WindowMatch: how many tokens of a text a model predicts that leaves out some of its sub-layers,
// on a window of the text:
//
//     text     ...  a  b  c  d  e        the window is a b c d: rows of the mask (scratch_rows.hpp)
//     wanted           b  c  d  e        what each row predicts, if it is right
//
// The share of right tokens is SWIFT's matchness.
// Borrows the backend; owns memory for hidden states. Threads: one job at a time.
#pragma once

#include <span>
#include <vector>

#include "actors/decoding/head_candidates.hpp"
#include "actors/self_draft/scratch_rows.hpp"
#include "model/backend.hpp"

namespace paceline {

struct TextWindow {
    CachedText text = {};  // the token after the window too
    Position begin = 0;
    int count = 0;
    const SamplingParams* sampling = nullptr;  // of the predictions
};

class WindowMatch {
public:
    /// Precondition: the backend starts at layer 0 and has the head.
    WindowMatch(Backend& backend, HeadId head)
        : backend_{backend}, head_{head}, candidates_{backend} {}

    /// For each mask the number of tokens that it gets right, all masks in one pass; empty: it was
    /// cancelled. `cancel` may be nullptr. Precondition: masks * window.count scratch slots.
    [[nodiscard]] std::vector<int> right(const TextWindow& window,
                                         std::span<const SublayerMask> masks,
                                         std::span<const KvSlot> scratch,
                                         const CancelToken* cancel = nullptr);

private:
    Backend& backend_;
    HeadId head_;
    HeadCandidates candidates_;
    std::vector<Row> rows_;
    RowMemory hidden_;  // [rows, dim]
};

}  // namespace paceline
