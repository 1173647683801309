#include "actors/draft/draft_request.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/draft/grammar_source.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

/// The proposal's root and trunk, as tokens.
std::vector<TokenId> trunk_of(const msg::Proposal& proposal) {
    std::vector<TokenId> tokens{proposal.root_token};
    for (std::int32_t at = msg::kBelowRoot;;) {
        std::int32_t best = -1;
        for (std::uint32_t i = 0; i < proposal.count; ++i) {
            const msg::ProposedNode& node = proposal.nodes[i];
            if (node.parent != at) continue;
            if (best < 0 ||
                node.log_prob >= proposal.nodes[static_cast<std::size_t>(best)].log_prob)
                best = static_cast<std::int32_t>(i);
        }
        if (best < 0) return tokens;
        tokens.push_back(proposal.nodes[static_cast<std::size_t>(best)].token);
        at = best;
    }
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
      plan_{plan},
      account_{account},
      model_{tools.model.get()},
      drawn_{!spec.sampling.greedy()},
      weighs_{!plan.growth.adaptive && !plan.growth.thompson && !plan.growth.threshold_adapts &&
              plan.growth.confidence_min <= 0.0F},
      finish_{spec.finish_rule()},
      speculation_{spec.speculation} {
    const bool may_draw = spec.acceptance == AcceptanceRule::Rejection && !spec.sampling.greedy();
    if (plan.growth.draws && may_draw) text->draw_top = plan.growth.draw_top;
    if (model_ != nullptr) model_->open(*text);
    if (model_ != nullptr && tools.phrases) {
        phrases.emplace(*tools.phrases, tools.phrase_pool);
        phrases->commit(spec.text);
    }
    if (tools.source) source = tools.source(spec);
    // Masked has nothing to do without a source: candidates of a model are not masked.
    const GrammarUse use = tools.grammar_use;
    const bool asks =
        use == GrammarUse::MaskedForced || (use == GrammarUse::Masked && source != nullptr);
    if (asks && spec.compiled != nullptr && tools.grammars != nullptr)
        source = std::make_unique<GrammarSource>(*tools.grammars, spec, std::move(source), use);
    if (source == nullptr) return;
    source->commit(spec.text);
    source_due = true;
}

bool DraftRequest::uses_model() const {
    return model_ != nullptr && model_->knows(*text);
}

std::int32_t DraftRequest::room() const {
    // The target's own token takes the last place, so one candidate fewer can be of use.
    return speculation_.depth_max(finish_.room_at(text->tree.root().position + 1) - 1);
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
    missed = false;
    const std::span more = now.subspan(known.size());
    if (!more.empty()) go_on_with(more, 0, 0);
    return true;
}

/// `accepted` of the `could` candidates of a batch were, if that is known.
void DraftRequest::go_on_with(std::span<const TokenId> tokens,
                              std::int32_t accepted,
                              std::int32_t could) {
    if (source != nullptr) {
        if (source_busy) {
            uncommitted_.insert(uncommitted_.end(), tokens.begin(), tokens.end());
        } else {
            source->commit(tokens);
        }
        source_due = true;
    }
    if (phrases) phrases->commit(tokens);
    const DraftTreeUpdate step = text->follow(tokens);
    bool prepared = step.prepared;
    for (const JudgedNode& node : step.judged) {
        account_.rates.learn({.origin = node.origin, .drawn = drawn_}, node.log_prob, node.right);
    }
    begins_.reset();
    first_pass = true;
    DraftTree& tree = text->tree;
    if (model_ != nullptr && !text->cache) model_->open(*text);
    // A sequential source alone proposes again: it has more text now than when it made these
    // candidates.
    if (!uses_model() && plan_.growth.pace == DraftPace::Sequential) {
        tree.plant(tree.root().token, tree.root().position);
    }
    // Leaves without candidates may have some now. Not the ends of observed branches: these are
    // verified for what the target says there, and what follows them is not likely.
    std::vector<DraftNodeId> leaves;
    for (const DraftNode& node : tree.nodes()) {
        if (node.observe != 0 && node.id != tree.root().id) continue;
        if (tree.trunk_child(node.id) == nullptr) leaves.push_back(node.id);
    }
    for (const DraftNodeId leaf : leaves) tree.reopen(leaf);
    close_ends();
    prepared |= take_branches();
    if (source_busy && tree.find(source_behind) == nullptr) cancel.cancel();
    growth.verified(accepted, could, prepared);
    changed = false;  // the first segment has the tree as it is now
    unsent.reset();
    wanted.clear();
    ++waits;
    const Position root = tree.root().position;
    if (trunk_ahead_ && trunk_ahead_->root_position <= root) {
        receive_trunk(*std::exchange(trunk_ahead_, std::nullopt));
    }
    if (candidates_ahead_ && candidates_ahead_->root_position <= root) {
        receive_candidates(*std::exchange(candidates_ahead_, std::nullopt));
    }
}

void DraftRequest::close_ends() {
    const auto& ends = finish_.end_tokens;
    std::vector<DraftNodeId> found;
    for (const DraftNode& node : text->tree.nodes()) {
        const bool is_root = node.id == text->tree.root().id;
        const bool ends_answer = std::find(ends.begin(), ends.end(), node.token) != ends.end();
        if (!is_root && ends_answer) found.push_back(node.id);
    }
    close(found);
}

void DraftRequest::close(std::span<const DraftNodeId> nodes) {
    for (const DraftNodeId node : nodes) text->tree.close(node);
}

void DraftRequest::receive_candidates(const msg::Proposal& candidates) {
    if (candidates.root_position > text->tree.root().position) {
        candidates_ahead_ = candidates;
        return;
    }
    changed |= text->tree.merge(candidates, text->tokens, ProposalSource::Exit,
                                plan_.growth.exit_alternatives);
    close_ends();
    growth.candidates_arrived();
}

void DraftRequest::receive_trunk(const msg::Proposal& trunk) {
    if (trunk.root_position > text->tree.root().position) {
        trunk_ahead_ = trunk;
        return;
    }
    told_root_ = trunk.root_position;
    told_ = trunk_of(trunk);
    (void)text->tree.merge(trunk, text->tokens, ProposalSource::Trunk,
                           0);  // its sender proposes it
    close_ends();
}

void DraftRequest::receive_branches(const msg::Proposal& branches) {
    branches_ = branches;
    (void)take_branches();
}

bool DraftRequest::take_branches() {
    DraftTree& tree = text->tree;
    const Position root = tree.root().position;
    if (!branches_ || branches_->root_position > root) return false;
    // A candidate that exists already is this draft's own trunk. But Correct's proposals from
    // before it got this root may still be under way and arrive one after another.
    const bool more = branches_root_ == root && branches_->root_position < root;
    if (tree.trunk_child(tree.root().id) != nullptr && !more) return false;
    (void)tree.merge(*branches_, text->tokens, ProposalSource::Trunk, 0);
    branches_.reset();
    // Correct has been asked about these: this draft goes on after the last of them, and reads
    // all that is above it in the same pass.
    std::vector<DraftNodeId> inner;
    for (const DraftNode& node : tree.nodes()) {
        if (tree.trunk_child(node.id) != nullptr) inner.push_back(node.id);
    }
    close(inner);
    close_ends();
    if (inner.empty()) return false;
    branches_root_ = root;
    return true;
}

bool DraftRequest::trunk_is_text_at(Position position) const {
    if (position < told_root_ || position > text->tree.root().position) return false;
    const auto count = static_cast<std::size_t>(position - told_root_) + 1;
    return count <= told_.size() &&
           std::equal(told_.begin(), told_.begin() + static_cast<std::ptrdiff_t>(count),
                      text->tokens.begin() + told_root_);
}

std::optional<DraftNodeId> DraftRequest::trunk_node_at(Position position) const {
    const DraftNode* at = &text->tree.root();
    const Position root = at->position;
    if (position < root || told_.empty() || told_root_ > root || !trunk_is_text_at(root) ||
        position - told_root_ >= static_cast<Position>(told_.size())) {
        return std::nullopt;
    }
    for (Position p = root + 1; p <= position && at != nullptr; ++p) {
        at = text->tree.child(at->id, told_[static_cast<std::size_t>(p - told_root_)]);
    }
    if (at == nullptr) return std::nullopt;
    return at->id;
}

bool DraftRequest::stopped(const ChainStop& stop, std::int32_t depth) const {
    const DraftNode* at = &text->tree.root();
    for (std::int32_t d = 0; d < depth; ++d) {
        const DraftNode* below = text->tree.trunk_child(at->id);
        if (below == nullptr) break;
        at = below;
    }
    return at->id != text->tree.root().id &&
           speculation_.stricter(stop).ends_behind(at->log_prob, at->path_log_prob);
}

DraftRequest::Judged DraftRequest::judged(const msg::Verdict& verdict) const {
    Judged found;
    const DraftNode* at = &text->tree.root();
    for (std::uint32_t depth = 0; depth < verdict.depth; ++depth) {
        at = text->tree.trunk_child(at->id);
        if (at == nullptr || at->origin != msg::Origin::Trunk) break;
        ++found.drafted;
        // The last token is the target's own.
        const bool stands = found.accepted == static_cast<int>(depth) &&
                            depth + 1 < verdict.count && verdict.tokens[depth] == at->token;
        found.accepted += stands ? 1 : 0;
    }
    return found;
}

Growth::Step DraftRequest::next(const ChainStop& stop) {
    growth.stop_at(speculation_.stricter(stop));
    if (account_.price.generation > 0) weigh_passes();
    return growth.next(text->tree, room());
}

/// What the account says about the next pass. A source that answers at once costs none.
void DraftRequest::weigh_passes() {
    const msg::Price& price = account_.price;
    // One that runs ahead must be deeper than the batch: the target takes the rest in the next one.
    if (plan_.growth.pace == DraftPace::Sequential)
        growth.limit(static_cast<std::int32_t>(std::min(price.candidates_max, kGammaMax)));
    if (!uses_model()) return growth.pause(account_.off() && model_ != nullptr);
    const HitSource own{.origin = msg::Origin::Trunk, .drawn = drawn_};
    const double hit = account_.rates.mean(own);
    const bool probe = price.mode == msg::SpeculationMode::Probe;
    if (!begins_ || probe || plan_.growth.pace != DraftPace::Sequential) {
        begins_ = account_.passes.begins(price, hit, account_.rates.tries(own), growth.gamma());
    }
    growth.pause(account_.off() || (weighs_ && !*begins_));
    if (!weighs_ || probe) return growth.weigh({});
    growth.weigh({.least = static_cast<float>(account_.passes.reach_min(
                      price, hit, plan_.growth.pace == DraftPace::Sequential)),
                  .paths_log = calibrated_paths()});
}

/// Of one of the tree's nodes.
float DraftRequest::calibrated_path(DraftNodeId node) const {
    const auto nodes = text->tree.nodes();
    const auto at = std::find_if(nodes.begin(), nodes.end(),
                                 [node](const DraftNode& other) { return other.id == node; });
    return calibrated_paths()[static_cast<std::size_t>(at - nodes.begin())];
}

/// The log probabilities of the paths, as far as earlier candidates have shown them.
std::vector<float> DraftRequest::calibrated_paths() const {
    const auto nodes = text->tree.nodes();
    std::vector<float> paths(nodes.size(), 0.0F);
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        const auto above = std::lower_bound(
            nodes.begin(), nodes.end(), nodes[i].parent,
            [](const DraftNode& node, DraftNodeId parent) { return node.id < parent; });
        const double own = account_.rates.expected({.origin = nodes[i].origin, .drawn = drawn_},
                                                   nodes[i].log_prob);
        paths[i] = paths[static_cast<std::size_t>(above - nodes.begin())] +
                   static_cast<float>(std::log(own));
    }
    return paths;
}

void DraftRequest::take(const DraftModel::Said& said) {
    text->tree.expand(said.node, said.candidates);
    if (said.drawn) text->tree.mark_drawn(said.node);
    close_ends();
    changed = true;
}

/// Log probability of a path below which a source's candidate is not taken: the model goes on below
/// those that are. -inf: any is taken.
float DraftRequest::least_path_log_prob() const {
    const msg::Price& price = account_.price;
    const bool sequential = plan_.growth.pace == DraftPace::Sequential;
    if (!sequential || !uses_model() || price.token_us <= 0.0F) return std::log(0.0F);
    return std::log(price.row_us / price.token_us);
}

void DraftRequest::receive_own(const msg::OwnTokens& own) {
    const DraftNode& root = text->tree.root();
    if (missed || own.root_position != root.position || own.root_token != root.token) return;
    const std::span tokens = std::span{own.tokens}.first(own.count);
    if (phrases) phrases->observe(tokens);
    if (source != nullptr && !source_busy) source->observe(tokens);
}

void DraftRequest::take_candidates(DraftNodeId behind,
                                   std::span<const SourceNode> candidates,
                                   std::int32_t asked,
                                   const ChainStop& stop) {
    if (!uncommitted_.empty()) source->commit(std::exchange(uncommitted_, {}));
    DraftTree& tree = text->tree;
    if (tree.find(behind) == nullptr) return;
    // The source plans anew below the root: what it named before is not observed any more.
    if (behind == tree.root().id) {
        for (const DraftNode& node : tree.nodes()) tree.observe(node.id, 0);
    }
    const bool alone = !uses_model();
    const float least = least_path_log_prob();
    // Observed branches serve later rounds: of the pipeline's limits only the room counts for them,
    // and of the client's all.
    const std::vector<bool> lead = lead_to_observed(candidates);
    const std::int32_t deepest = room() - tree.depth(*tree.find(behind));
    struct Taken {
        std::optional<DraftNodeId> node = {};  // nothing is taken below it
        float path = 0.0F;
        std::int32_t depth = 0;
    };
    const Taken top{.node = behind, .path = calibrated_path(behind)};
    std::vector<Taken> taken(candidates.size());
    if (alone && asked > 0) tree.close(behind);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const SourceNode& one = candidates[i];
        PACE_CHECK(one.parent < static_cast<std::int32_t>(i), "a candidate before its parent");
        const Taken& above = one.parent < 0 ? top : taken[static_cast<std::size_t>(one.parent)];
        // A draft's vocabulary may be padded beyond the target's.
        const bool known_token = one.token >= 0 && one.token < plan_.vocab_size;
        if (!above.node || !known_token || above.depth >= (lead[i] ? deepest : asked)) continue;
        const float path =
            above.path + static_cast<float>(std::log(account_.rates.expected(
                             {.origin = source->origin(), .drawn = drawn_}, one.log_prob)));
        if ((path < least && !lead[i]) || tree.find(*above.node) == nullptr) continue;
        const DraftNode* known = tree.child(*above.node, one.token);
        std::optional<DraftNodeId> node =
            known != nullptr ? known->id
                             : tree.add(*above.node, one.token, one.log_prob, source->origin());
        if (!node) continue;
        if (one.observe != 0) tree.observe(*node, one.observe);
        const DraftNode& last = *tree.find(*node);
        const bool stopped = speculation_.stricter(lead[i] ? ChainStop{} : stop)
                                 .ends_behind(last.log_prob, last.path_log_prob);
        // What `stop` ended is continued as soon as it lets it; what the source knows no further,
        // is not.
        if (alone && (lead[i] || (!stopped && above.depth + 1 < asked))) tree.close(*node);
        if (stopped) node.reset();
        taken[i] = {.node = node, .path = path, .depth = above.depth + 1};
    }
    close_ends();
    changed = true;
}

std::vector<TokenId> DraftRequest::path_to(DraftNodeId node) const {
    std::vector<TokenId> tokens;
    for (const DraftNode* step : text->tree.path(node)) {
        if (step->id != text->tree.root().id) tokens.push_back(step->token);
    }
    return tokens;
}

}  // namespace paceline
