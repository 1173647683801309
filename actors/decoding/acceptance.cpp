#include "actors/decoding/acceptance.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

BatchWalk::BatchWalk(const WalkInput& input) : input_{input}, at_{0} {
    PACE_CHECK(!input.rows.empty(), "a batch without its root is verified");
    PACE_CHECK(!input.committed.empty(), "a batch is verified without a text before it");
    PACE_CHECK(input.drawn_below.empty() || input.drawn_below.size() == input.rows.size(),
               "drawn siblings of other rows");
    if (input.grammar != nullptr && !input.grammar->follow(input.committed))
        fail(FinishReason::GrammarFailed);
}

std::optional<std::size_t> BatchWalk::wanted() const {
    return at_;
}

std::vector<std::size_t> BatchWalk::children(std::size_t row) const {
    std::vector<std::size_t> found;
    for (std::size_t i = row + 1; i < input_.rows.size(); ++i) {
        if (input_.rows[i].parent == input_.rows[row].node.value) found.push_back(i);
    }
    return found;
}

std::vector<std::size_t> BatchWalk::likely_path(std::size_t row, std::size_t count) const {
    PACE_CHECK(row < input_.rows.size(), "the path of a row that is not in the batch");
    std::vector<std::size_t> path{row};
    for (std::size_t i = row + 1; i < input_.rows.size() && path.size() < count; ++i) {
        if (input_.rows[i].parent == input_.rows[path.back()].node.value) path.push_back(i);
    }
    return path;
}

/// The target's token after the current row of the walk.
std::optional<TokenId> BatchWalk::chosen(std::span<float> logits, SamplerScratch& scratch) {
    const Position position = position_behind(*at_);
    const SeenTokens seen{.committed = input_.committed, .path = result_.tokens};
    const TokenMask* mask = masked() ? &input_.grammar->mask() : nullptr;
    if (input_.rule == AcceptanceRule::Unverified) {
        const std::vector<std::size_t> candidates = children(*at_);
        if (!candidates.empty()) {
            const TokenId first = input_.rows[candidates.front()].token;
            if (mask == nullptr || mask->allows(first)) return first;
        }
    }
    if (mask != nullptr && planted(PlantedBug::MaskBeforeBias)) {
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (!mask->allows(static_cast<TokenId>(i))) logits[i] = -100.0F;
        mask = nullptr;
    }
    if (input_.rule != AcceptanceRule::Rejection) {
        return sample(logits, position, seen, input_.sampling, scratch, mask);
    }
    probabilities_.resize(logits.size());
    if (!probabilities(logits, seen, input_.sampling, probabilities_, scratch, mask))
        return std::nullopt;
    weights_.assign(probabilities_.begin(), probabilities_.end());
    return choose_by_rejection();
}

/// From weights_, which are used up.
TokenId BatchWalk::choose_by_rejection() {
    const DrawnSiblings* drawn =
        input_.drawn_below.empty() ? nullptr : input_.drawn_below[*at_].get();
    std::vector<TokenId> tokens;
    if (drawn != nullptr) {
        tokens = drawn->tokens();
        drawn->spread(proposed_, weights_.size());
    }
    std::vector<TokenId> deterministic;
    for (const std::size_t child : children(*at_)) {
        const TokenId token = input_.rows[child].token;
        if (drawn == nullptr || !drawn->has(token)) deterministic.push_back(token);
    }
    CounterChance counted{input_.sampling.seed, position_behind(*at_)};
    Chance& chance = input_.chance == nullptr ? counted : *input_.chance;
    CandidateTokens candidates{.tokens = tokens, .deterministic = deterministic};
    if (drawn != nullptr) candidates.q = proposed_;
    return choose(weights_, candidates, chance).token;
}

void BatchWalk::feed(std::span<float> logits, SamplerScratch& scratch) {
    PACE_CHECK(at_.has_value(), "a walk that is over is fed");
    take_own(chosen(logits, scratch));
}

void BatchWalk::feed(std::optional<TokenId> own) {
    PACE_CHECK(at_.has_value() && coupled() && !masked(),
               "a coupled walk that is not over is fed a token");
    take_own(own);
}

void BatchWalk::take_own(std::optional<TokenId> own) {
    if (own && (!masked() || input_.grammar->accept(*own))) {
        commit(*own);
    } else {
        fail(FinishReason::Failed);
    }
}

/// The tokens accepted so far are kept; the last one replaces the target's own.
void BatchWalk::fail(FinishReason reason) {
    result_.finish = reason;
    if (!result_.nodes.empty()) result_.nodes.pop_back();
    at_.reset();
}

void BatchWalk::commit(TokenId own) {
    const std::size_t from = *at_;
    result_.tokens.push_back(own);
    result_.last_row = from;
    result_.finish = input_.finish.after(own, input_.rows[from].position + 1);
    if (planted(PlantedBug::ForcedIsAccepted) && masked() && result_.finish == FinishReason::None) {
        const std::optional<TokenId> forced = input_.grammar->mask().only();
        if (forced) (void)input_.grammar->accept(*forced);
    }
    at_.reset();
    if (result_.finish != FinishReason::None || result_.tokens.size() > kGammaMax) return;
    for (const std::size_t child : children(from)) {
        if (input_.rows[child].token != own) continue;
        result_.nodes.push_back(input_.rows[child].node);
        at_ = child;
        return;
    }
}

WalkResult BatchWalk::take() {
    PACE_CHECK(!at_.has_value(), "the verdict of a walk that is not over");
    return std::move(result_);
}

}  // namespace paceline
