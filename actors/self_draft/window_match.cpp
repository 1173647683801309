#include "actors/self_draft/window_match.hpp"

#include "ipc/base/check.hpp"

namespace paceline {

std::vector<int> WindowMatch::right(const TextWindow& window,
                                    std::span<const SublayerMask> masks,
                                    std::span<const KvSlot> scratch,
                                    const CancelToken* cancel) {
    const auto count = static_cast<std::size_t>(window.count);
    PACE_CHECK(masks.size() * count <= scratch.size(), "a window without scratch slots");
    rows_.clear();
    for (std::size_t m = 0; m < masks.size(); ++m) {
        add_window(rows_, window.text, window.begin, scratch.subspan(m * count, count), masks[m],
                   backend_.config());
    }
    const HiddenRows hidden = backend_.rows_of(hidden_, rows_.size());
    if (backend_.run_layers(rows_, hidden, cancel) == RunOutcome::Cancelled) return {};
    std::vector<HeadRow> wanted;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const Position next = rows_[i].position + 1;
        wanted.push_back(
            {.hidden = {hidden, i},
             .seen = {.committed = window.text.tokens.first(static_cast<std::size_t>(next)),
                      .path = {}},
             .job = {window.sampling, next, 1}});
    }
    const std::vector<std::vector<Candidate>> best = candidates_.find(head_, wanted);
    std::vector<int> right(masks.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
        const TokenId next = window.text.tokens[static_cast<std::size_t>(wanted[i].job.position)];
        right[i / count] += !best[i].empty() && best[i].front().token == next ? 1 : 0;
    }
    return right;
}

}  // namespace paceline
