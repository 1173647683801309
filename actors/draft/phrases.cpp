#include "actors/draft/phrases.hpp"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

constexpr float kFirstOfPhrase = 0.3F;  // of the newest; of older ones less
constexpr float kNextInPhrase = 0.8F;   // of each token after it

/// What the model proposed first after a node; nullptr if it was not computed, or is gone.
const DraftNode* first_choice(const DraftTree& tree, DraftNodeId node) {
    for (const DraftNode& child : tree.nodes().subspan(1)) {
        if (child.parent == node && !child.tentative && child.origin == msg::Origin::Trunk)
            return &child;
    }
    return nullptr;
}

LookaheadOptions without_text(LookaheadOptions options) {
    options.pool_from_prompt = false;  // drafted tokens are not text
    return options;
}

}  // namespace

std::shared_ptr<NgramPool> PhraseOptions::make_pool() const {
    return std::make_shared<NgramPool>(
        static_cast<std::size_t>(lookahead.ngram),
        static_cast<std::size_t>(std::max(lookahead.guesses, phrases)));
}

Phrases::Phrases(const PhraseOptions& options, std::shared_ptr<NgramPool> pool)
    : options_{options},
      pool_{pool != nullptr ? std::move(pool) : options.make_pool()},
      drafting_{without_text(options.lookahead), pool_} {}

void Phrases::commit(std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    learn(tokens);
    if (!drafted_last_) {
        drafting_.commit(tokens);
        drafted_last_ = tokens.back();
    }
    end_.insert(end_.end(), tokens.begin(), tokens.end());
    if (options_.lookahead.pool_from_prompt) pool_->add_end_of(end_, tokens.size());
    const std::size_t kept = std::min(end_.size(), pool_->length() - 1);
    end_.erase(end_.begin(), end_.end() - static_cast<std::ptrdiff_t>(kept));
}

/// The target's own tokens from the first rejected row on; what is before it is text.
void Phrases::learn(std::span<const TokenId> tokens) {
    const std::size_t length = pool_->length();
    const auto [named, committed] =
        std::mismatch(trunk_.begin(), trunk_.end(), tokens.begin(), tokens.end());
    for (auto first = static_cast<std::size_t>(named - trunk_.begin());
         first + length <= trunk_.size(); ++first) {
        std::vector<TokenId> ngram;
        for (std::size_t i = first; i < first + length; ++i) {
            const std::optional<TokenId> own = rows_.token(i);
            if (!own) break;
            ngram.push_back(*own);
        }
        if (ngram.size() == length) pool_->add(ngram.front(), std::span{ngram}.subspan(1));
    }
    trunk_.clear();
    rows_.forget();
}

void Phrases::extend(DraftTree& tree, std::int32_t deepest) {
    rows_.plan();
    trunk_.clear();
    for (const DraftNode& node : tree.nodes()) tree.observe(node.id, 0);
    const std::vector<DraftNodeId> trunk = tree.trunk();
    for (std::size_t i = 1; i < trunk.size() && i <= ObservedRows::kRowsMax; ++i) {
        tree.observe(trunk[i], rows_.name(i - 1));
        trunk_.push_back(tree.find(trunk[i])->token);
    }
    const DraftNodeId tip = trunk.back();
    std::int32_t rank = 0;
    for (const std::vector<TokenId>& phrase : pool_->after(tree.find(tip)->token)) {
        if (++rank > options_.phrases) return;
        DraftNodeId at = tip;
        for (const TokenId token : phrase) {
            if (tree.depth(*tree.find(at)) >= deepest) break;
            const DraftNode* known = tree.child(at, token);
            const float p = at == tip ? kFirstOfPhrase / static_cast<float>(rank) : kNextInPhrase;
            const std::optional<DraftNodeId> next =
                known != nullptr ? known->id
                                 : tree.add(at, token, std::log(p), msg::Origin::Lookup);
            if (!next) break;
            tree.close(*next);
            at = *next;
        }
    }
}

std::vector<DraftNodeId> Phrases::plan_pass(DraftTree& tree, DraftNodeId tip, std::int32_t tokens) {
    tip_ = tip;
    columns_.clear();
    const TokenId last = tree.find(tip)->token;
    // Drafted tokens were rejected: the window goes on, as it does whatever is accepted.
    if (drafted_last_ != last) drafting_.commit(std::span{&last, 1});
    drafted_last_ = last;
    const CancelToken never;
    const std::vector<SourceNode> planned = drafting_.grow({}, tokens, never);
    const std::vector<bool> of_window = lead_to_observed(planned);
    struct Placed {
        std::optional<DraftNodeId> node = {};
        std::int32_t depth = 0;
    };
    const Placed top{.node = tip};
    std::vector<Placed> placed(planned.size());
    std::vector<DraftNodeId> expand;
    for (std::size_t i = 0; i < planned.size(); ++i) {
        const SourceNode& one = planned[i];
        const Placed& above = one.parent < 0 ? top : placed[static_cast<std::size_t>(one.parent)];
        // The model says one more token after the last guess.
        if (!above.node || (!of_window[i] && above.depth + 1 >= tokens)) continue;
        if (tree.find(*above.node) == nullptr) continue;  // a full tree: it had to make room
        placed[i] = {.node = tree.add_tentative(*above.node, one.token, one.log_prob),
                     .depth = above.depth + 1};
        if (!placed[i].node) continue;
        if (one.observe != 0) columns_.emplace_back(*placed[i].node, one.observe);
        if ((one.observe != 0 || !of_window[i]) && !tree.find(*placed[i].node)->expanded)
            expand.push_back(*placed[i].node);
    }
    return expand;
}

void Phrases::passed(DraftTree& tree) {
    std::vector<msg::OwnToken> own;
    for (const auto& [node, name] : columns_) {
        const DraftNode* next = first_choice(tree, node);
        if (next != nullptr) own.push_back({.node = name, .token = next->token});
    }
    drafting_.observe(own);
    columns_.clear();
    tree.drop_tentative();
    std::vector<TokenId> drafted;
    const DraftNode* at = tree.find(std::exchange(tip_, kNoDraftNode));
    for (at = at == nullptr ? nullptr : tree.trunk_child(at->id); at != nullptr;
         at = tree.trunk_child(at->id)) {
        drafted.push_back(at->token);
    }
    if (drafted.empty()) return;
    drafting_.commit(drafted);
    drafted_last_ = drafted.back();
}

}  // namespace paceline
