#include "actors/draft/grammar_source.hpp"

#include <cmath>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr float kForced =
    0.98F;  // the spelling is a guess where the grammar forces bytes, not tokens

}  // namespace

GrammarSource::GrammarSource(GrammarLoader& loader,
                             const BeginPayload& spec,
                             std::unique_ptr<DraftSource> next,
                             GrammarUse use)
    : grammar_{loader, spec.compiled, spec.end_tokens, spec.finish_rule().answer_begin},
      next_{std::move(next)},
      forces_{use == GrammarUse::MaskedForced} {
    PACE_CHECK(use != GrammarUse::Off, "a grammar that proposals do not use");
}

void GrammarSource::commit(std::span<const TokenId> tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    if (next_ != nullptr) next_->commit(tokens);
}

/// The chain that the grammar forces after `path`, which it is asked about from then on. Nothing:
/// it forbids the path. What this adds to the matcher is taken back by the next follow().
std::optional<std::vector<SourceNode>> GrammarSource::forced(std::span<const TokenId> path,
                                                             std::int32_t most) {
    std::vector<SourceNode> nodes;
    broken_ = broken_ || !grammar_.follow(text_);
    if (broken_) return nodes;
    for (const TokenId token : path) {
        if (!grammar_.accept(token)) return std::nullopt;
    }
    origin_ = msg::Origin::Forced;
    if (!forces_) return nodes;
    for (const TokenId token : grammar_.forced_tokens(static_cast<std::size_t>(most))) {
        if (!grammar_.accept(token)) break;
        nodes.push_back({.token = token,
                         .parent = static_cast<std::int32_t>(nodes.size()) - 1,
                         .log_prob = std::log(kForced)});
    }
    return nodes;
}

std::vector<SourceNode> GrammarSource::grow(std::span<const TokenId> path,
                                            std::int32_t depth,
                                            const CancelToken& cancel) {
    std::optional<std::vector<SourceNode>> nodes = forced(path, depth);
    if (!nodes) return {};  // nothing below it can be the target's
    if (!nodes->empty() || next_ == nullptr) return *std::move(nodes);
    origin_ = next_->origin();
    nodes = next_->grow(path, depth, cancel);
    return broken_ ? *std::move(nodes) : allowed(path, *nodes);
}

/// Of `nodes` below `path` those that the grammar allows, with all that is above them.
std::vector<SourceNode> GrammarSource::allowed(std::span<const TokenId> path,
                                               std::span<const SourceNode> nodes) {
    std::vector<TokenId> text = text_;
    text.insert(text.end(), path.begin(), path.end());
    const std::size_t top = text.size();
    std::vector<std::vector<TokenId>> paths(nodes.size());
    std::vector<std::int32_t> places(nodes.size(), -1);  // in the result
    std::vector<SourceNode> kept;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        SourceNode node = nodes[i];
        if (node.parent >= 0) {
            const auto above = static_cast<std::size_t>(node.parent);
            if (places[above] < 0) continue;
            paths[i] = paths[above];
            node.parent = places[above];
        }
        paths[i].push_back(node.token);
        text.resize(top);
        text.insert(text.end(), paths[i].begin(), paths[i].end());
        if (!grammar_.follow(text)) continue;
        places[i] = static_cast<std::int32_t>(kept.size());
        kept.push_back(node);
    }
    return kept;
}

}  // namespace paceline
