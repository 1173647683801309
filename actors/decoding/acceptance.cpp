#include "actors/decoding/acceptance.hpp"

#include <optional>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

/// The row below `parent` that carries `token`.
std::optional<std::size_t> child_row(std::span<const msg::WaveRow> rows,
                                     std::size_t parent,
                                     TokenId token) {
    for (std::size_t i = parent + 1; i < rows.size(); ++i) {
        if (rows[i].parent == rows[parent].node.value && rows[i].token == token) return i;
    }
    return std::nullopt;
}

}  // namespace

Judged judge_coupled(const CoupledInput& input,
                     const LogitsOfRow& logits,
                     SamplerScratch& scratch) {
    PACE_CHECK(input.root < input.rows.size(), "a wave without its root is judged");
    PACE_CHECK(!input.committed.empty(), "a wave is judged without a text before it");
    Judged judged;
    std::size_t at = input.root;
    while (true) {
        const Position position = input.rows[at].position + 1;
        const SeenTokens seen{.committed = input.committed, .path = judged.tokens};
        const std::optional<TokenId> own =
            sample(logits(at), position, seen, input.sampling, scratch);
        ++judged.rows_sampled;
        if (!own) {
            // What was accepted so far stands: its last token takes the place of the target's own.
            judged.finish = msg::Finish::Failed;
            if (!judged.nodes.empty()) judged.nodes.pop_back();
            return judged;
        }
        judged.tokens.push_back(*own);
        judged.finish = input.finish.after(*own, position);
        if (judged.finish != msg::Finish::No || judged.tokens.size() > kGammaMax) return judged;
        const std::optional<std::size_t> next = child_row(input.rows, at, *own);
        if (!next) return judged;
        judged.nodes.push_back(input.rows[*next].node);
        at = *next;
    }
}

}  // namespace paceline
