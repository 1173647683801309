#include "actors/draft/draft_request.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/draft/grammar_source.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

std::unique_ptr<DraftSource> make_source(const BeginPayload& spec, const DraftTools& tools) {
    std::unique_ptr<DraftSource> source;
    if (tools.source) source = tools.source(spec);
    // Masked has nothing to do without a source: candidates of a model are not masked.
    const GrammarUse use = tools.grammar_use;
    const bool asks =
        use == GrammarUse::MaskedForced || (use == GrammarUse::Masked && source != nullptr);
    if (!asks || spec.compiled == nullptr || tools.grammars == nullptr) return source;
    return std::make_unique<GrammarSource>(*tools.grammars, spec, std::move(source), use);
}

}  // namespace

DraftRequest::DraftRequest(const control::Begin& begin,
                           const BeginPayload& spec,
                           const DraftPlan& plan,
                           const DraftTools& tools,
                           DraftAccount& account)
    : id{begin.request},
      attempt{begin.attempt},
      text{std::make_shared<DraftText>(spec)},
      growth{plan.growth, begin.request.value},
      source{make_source(spec, tools), spec.text},
      worth{plan.growth, !spec.sampling.greedy(), account},
      peers{plan.growth.exit_alternatives},
      model_{tools.model.get()},
      limits_{.finish = spec.finish_rule(),
              .speculation = spec.speculation,
              .vocab_size = plan.vocab_size} {
    const bool may_draw = spec.acceptance == AcceptanceRule::Rejection && !spec.sampling.greedy();
    if (plan.growth.draws && may_draw) text->draw_top = plan.growth.draw_top;
    if (model_ != nullptr) model_->cache().open(*text);
    if (model_ != nullptr && tools.phrases) {
        phrases_.emplace(*tools.phrases, tools.phrase_pool);
        phrases_->commit(spec.text);
    }
}

bool DraftRequest::uses_model() const {
    return model_ != nullptr && model_->cache().knows(*text);
}

DraftRequest::Fit DraftRequest::fit(const msg::Verdict& verdict) const {
    const Position next = text->tree.root().position + 1;
    if (verdict.base < next) return Fit::Old;
    return verdict.base == next && verdict.count > 0 ? Fit::Next : Fit::Gap;
}

void DraftRequest::follow(const msg::Verdict& verdict) {
    go_on_with(std::span{verdict.tokens.data(), verdict.count},
               static_cast<std::int32_t>(verdict.count) - 1,
               static_cast<std::int32_t>(verdict.depth));
}

bool DraftRequest::catch_up(std::span<const TokenId> now) {
    const std::vector<TokenId>& known = text->tokens;
    if (now.size() < known.size() || !std::equal(known.begin(), known.end(), now.begin())) {
        return false;
    }
    waits.for_begin = false;
    const std::span more = now.subspan(known.size());
    if (!more.empty()) go_on_with(more, 0, 0);
    return true;
}

/// `accepted` of the `could` candidates of a batch were, if that is known.
void DraftRequest::go_on_with(std::span<const TokenId> tokens,
                              std::int32_t accepted,
                              std::int32_t could) {
    source.commit(tokens);
    if (phrases_) phrases_->commit(tokens);
    const DraftTreeUpdate step = text->follow(tokens);
    worth.verified(step.judged);
    DraftTree& tree = text->tree;
    if (model_ != nullptr && !text->cache) model_->cache().open(*text);
    // A sequential source alone proposes again: it has more text now than when it made these
    // candidates.
    if (!uses_model() && growth.rule().pace == DraftPace::Sequential) {
        tree.plant(tree.root().token, tree.root().position);
    }
    // Leaves without candidates may have some now. Not the ends of observed branches: these are
    // verified for what the target says there, and what follows them is not likely.
    for (const DraftNode& node : tree.nodes()) {
        if (node.observe != 0 && node.id != tree.root().id) continue;
        if (tree.trunk_child(node.id) == nullptr) tree.reopen(node.id);
    }
    limits_.close_ends(tree);
    const bool prepared = take_branches() || step.prepared;
    worth.began(tree.trunk_child(tree.root().id) != nullptr);
    source.followed(tree);
    growth.verified(accepted, could, prepared);
    unsent = {};  // the first segment has the tree as it is now
    waits.wanted.clear();
    ++waits.candidates;
    const Position root = tree.root().position;
    if (const auto trunk = peers.take_due_trunk(root)) receive_trunk(*trunk);
    if (const auto candidates = peers.take_due_candidates(root)) receive_candidates(*candidates);
}

void DraftRequest::receive_own(const msg::OwnTokens& own) {
    const DraftNode& root = text->tree.root();
    if (waits.for_begin || own.root_position != root.position || own.root_token != root.token)
        return;
    const std::span tokens = std::span{own.tokens}.first(own.count);
    if (phrases_) phrases_->observe(tokens);
    source.observe(tokens);
}

void DraftRequest::receive_candidates(const msg::Proposal& candidates) {
    const std::optional<bool> changed = peers.merge_candidates(candidates, *text);
    if (!changed) return;
    unsent.changed |= *changed;
    limits_.close_ends(text->tree);
    growth.candidates_arrived();
}

void DraftRequest::receive_trunk(const msg::Proposal& trunk) {
    if (peers.merge_trunk(trunk, *text)) limits_.close_ends(text->tree);
}

void DraftRequest::receive_branches(const msg::Proposal& branches) {
    peers.keep_branches(branches);
    (void)take_branches();
}

bool DraftRequest::take_branches() {
    if (!peers.take_branches(*text)) return false;
    limits_.close_ends(text->tree);
    return true;
}

bool DraftRequest::stopped(const ChainStop& stop, std::int32_t depth) const {
    const DraftNode* at = &text->tree.root();
    for (std::int32_t d = 0; d < depth; ++d) {
        const DraftNode* below = text->tree.trunk_child(at->id);
        if (below == nullptr) break;
        at = below;
    }
    return at->id != text->tree.root().id &&
           limits_.speculation.stricter(stop).ends_behind(at->log_prob, at->path_log_prob);
}

Growth::Step DraftRequest::next(const ChainStop& stop) {
    growth.stop_at(limits_.speculation.stricter(stop));
    if (uses_model()) {
        worth.weigh(growth, text->tree);
    } else {
        worth.weigh_source(growth, model_ != nullptr || (source && source->observes()));
    }
    return growth.next(text->tree, room());
}

void DraftRequest::take(const NodeCandidates& said) {
    text->tree.expand(said.node, said.candidates);
    if (said.drawn) text->tree.mark_drawn(said.node);
    limits_.close_ends(text->tree);
    unsent.changed = true;
}

void DraftRequest::take_candidates(DraftNodeId behind,
                                   std::span<const SourceNode> candidates,
                                   std::int32_t asked,
                                   const ChainStop& stop) {
    DraftTree& tree = text->tree;
    if (tree.find(behind) == nullptr) return;
    // The source plans anew below the root: what it named before is not observed any more.
    if (behind == tree.root().id) {
        for (const DraftNode& node : tree.nodes()) tree.observe(node.id, 0);
    }
    const bool alone = !uses_model();
    const msg::Origin origin = source->origin();
    const float least = alone ? std::log(0.0F) : worth.least_path_log();
    // Observed branches serve later rounds: of the pipeline's limits only the room counts for them,
    // and of the client's all.
    const std::vector<bool> lead = lead_to_observed(candidates);
    const std::int32_t deepest = room() - tree.depth(*tree.find(behind));
    struct Taken {
        std::optional<DraftNodeId> node = {};  // nothing is taken below it
        float path = 0.0F;
        std::int32_t depth = 0;
    };
    const Taken top{.node = behind, .path = worth.path_log(tree, behind)};
    std::vector<Taken> taken(candidates.size());
    if (alone && asked > 0) tree.close(behind);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const SourceNode& one = candidates[i];
        PACE_CHECK(one.parent < static_cast<std::int32_t>(i), "a candidate before its parent");
        const Taken& above = one.parent < 0 ? top : taken[static_cast<std::size_t>(one.parent)];
        if (!above.node || !limits_.knows(one.token) || above.depth >= (lead[i] ? deepest : asked))
            continue;
        const float path = above.path + worth.expected_log(origin, one.log_prob);
        if ((path < least && !lead[i]) || tree.find(*above.node) == nullptr) continue;
        const DraftNode* known = tree.child(*above.node, one.token);
        std::optional<DraftNodeId> node =
            known != nullptr ? known->id : tree.add(*above.node, one.token, one.log_prob, origin);
        if (!node) continue;
        if (one.observe != 0) tree.observe(*node, one.observe);
        const DraftNode& last = *tree.find(*node);
        const bool stopped = limits_.speculation.stricter(lead[i] ? ChainStop{} : stop)
                                 .ends_behind(last.log_prob, last.path_log_prob);
        // What `stop` ended is continued as soon as it lets it; what the source knows no further,
        // is not.
        if (alone && (lead[i] || (!stopped && above.depth + 1 < asked))) tree.close(*node);
        if (stopped) node.reset();
        taken[i] = {.node = node, .path = path, .depth = above.depth + 1};
    }
    limits_.close_ends(tree);
    unsent.changed = true;
}

}  // namespace paceline
