#include "actors/segment/exit_evaluator.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

msg::Proposal proposal_of(const RequestState& state) {
    msg::Proposal proposal{};
    proposal.route = {.request = state.request(), .attempt = state.attempt(), .epoch = {}};
    proposal.root_position = state.tree().root().position;
    proposal.root_token = state.tree().root().token;
    proposal.state = msg::ProposalState::Growing;
    return proposal;
}

/// Adds a candidate; nothing if the proposal is full.
std::optional<std::int16_t> add(msg::Proposal& proposal, const msg::ProposedNode& node) {
    if (proposal.count >= kProposalNodesMax) return std::nullopt;
    proposal.nodes[proposal.count] = node;
    return static_cast<std::int16_t>(proposal.count++);
}

/// A tree's paths inside a proposal, each node once.
class PathWriter {
public:
    explicit PathWriter(const TokenTree& tree) : tree_{tree} {}

    /// The path down to `node` (which is in the tree): the index of its last one. Nothing if the
    /// proposal is full. `log_prob_of`: what is said of a node that is written here.
    template <class LogProbOf>
    std::optional<std::int16_t> write(msg::Proposal& proposal, NodeId node, LogProbOf log_prob_of) {
        std::int16_t at = msg::kBelowRoot;
        for (const TreeNode* step : tree_.path(node)) {
            if (step->id == tree_.root().id) continue;
            const auto known = places_.find(step->id);
            if (known != places_.end()) {
                at = known->second;
                continue;
            }
            const auto added = add(proposal, {.token = step->token,
                                              .parent = at,
                                              .origin = step->origin,
                                              .log_prob = log_prob_of(*step)});
            if (!added) return std::nullopt;
            places_.emplace(step->id, *added);
            at = *added;
        }
        return at;
    }

private:
    const TokenTree& tree_;
    std::map<NodeId, std::int16_t> places_;
};

std::vector<TokenId> children_of(const TokenTree& tree, NodeId parent) {
    std::vector<TokenId> tokens;
    for (const TreeNode& node : tree.nodes()) {
        if (node.parent == parent && node.id != tree.root().id) tokens.push_back(node.token);
    }
    return tokens;
}

/// How many tokens of each head the tree has a place for; without heads below its deepest node.
std::vector<int> counts_of(const ExitOptions& options) {
    if (options.ahead_tree.empty())
        return std::vector<int>(options.ahead.size(), static_cast<int>(options.ahead_top));
    std::vector<int> counts;
    std::vector<std::size_t> depths;
    for (const AheadNode& node : options.ahead_tree) {
        depths.push_back(node.parent < 0 ? 0 : depths[static_cast<std::size_t>(node.parent)] + 1);
        if (counts.size() <= depths.back()) counts.resize(depths.back() + 1);
        int& count = counts[depths.back()];
        count = std::max(count, node.rank + 1);
    }
    return counts;
}

/// The part of the layers that come after this segment; of the last one all.
double later_layers(const Backend& backend) {
    const double layers = backend.config().layers;
    return backend.last_layer() < layers ? (layers - backend.last_layer()) / layers : 1.0;
}

}  // namespace

ExitEvaluator::ExitEvaluator(Backend& backend, ExitOptions options)
    : backend_{backend},
      options_{std::move(options)},
      candidates_{backend},
      worth_{options_.always_on || options_.lockstep,
             options_.proposes ? later_layers(backend) : 1.0} {
    PACE_CHECK(validate(options_).ok(), "exit options that were not validated");
    ahead_counts_ = counts_of(options_);
    const bool evaluates = options_.sends_candidates || options_.proposes;
    PACE_CHECK(!evaluates || backend_.has_head(options_.head), "an exit without its head");
    for (const HeadId id : options_.ahead) {
        PACE_CHECK(backend_.has_head(id), "a head that looks ahead is not there");
    }
}

ExitPart ExitEvaluator::plan(const std::shared_ptr<RequestState>& state,
                             std::span<const msg::BatchRow> rows) const {
    ExitPart part{.state = state, .committed = state->text()};
    if (!state->spec().speculation.on) return part;
    const TokenTree& tree = state->tree();
    for (const msg::BatchRow& named : rows) {
        const auto children = static_cast<int>(children_of(tree, named.node).size());
        const bool newest = children == 0;
        if (!options_.sends_candidates && !(newest && options_.proposes)) continue;
        ExitRow row{.row = named.tensor_row, .node = named.node, .position = named.position};
        row.newest = newest;
        // Existing children are not added again, but their probabilities are updated.
        row.wanted = options_.sends_candidates ? static_cast<int>(options_.top) + children : 1;
        const std::vector<const TreeNode*> path = tree.path(row.node);
        for (const TreeNode* node : std::span{path}.subspan(1)) row.path.push_back(node->token);
        part.rows.push_back(std::move(row));
    }
    return part;
}

void ExitEvaluator::drop_decided(ExitPart& part) {
    if (!part.watermark) return;
    std::erase_if(part.rows, [&](const ExitRow& row) {
        return WatermarkWatch::is_decided(*part.watermark, row.position);
    });
}

void ExitEvaluator::evaluate(std::span<ExitPart> parts,
                             ConstHiddenRows hidden,
                             std::span<const Row> rows) {
    if (has_adapter() && !rows.empty()) {
        const HiddenRows adapted = backend_.rows_of(adapted_, rows.size());
        (void)backend_.run_adapter(rows, hidden, adapted, nullptr);
        hidden = adapted;
    }
    std::vector<ExitRow*> all;
    std::vector<HeadRow> wanted;
    for (ExitPart& part : parts) {
        drop_decided(part);
        const SamplingParams& sampling = part.state->spec().sampling;
        for (ExitRow& row : part.rows) {
            all.push_back(&row);
            wanted.push_back({.hidden = {hidden, row.row},
                              .seen = {.committed = part.committed, .path = row.path},
                              .job = {&sampling, row.position + 1, row.wanted}});
        }
    }
    std::vector<std::vector<Candidate>> best = candidates_.find(options_.head, wanted);
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->best = std::move(best[i]);
}

void ExitEvaluator::evaluate(std::span<AheadPart> parts) {
    for (AheadPart& part : parts) {
        std::vector<TokenId> path;  // the best of each head so far
        for (std::size_t i = 0; i < ahead_counts_.size(); ++i) {
            const HeadId id = options_.ahead[i];
            const auto position = static_cast<Position>(part.committed.size() + path.size());
            const HeadRow row{.hidden = {part.hidden, 0},
                              .seen = {.committed = part.committed, .path = path},
                              .job = {&part.state->spec().sampling, position, ahead_counts_[i]}};
            part.levels.push_back(std::move(candidates_.find(id, {&row, 1}).front()));
            if (part.levels.back().empty()) break;
            path.push_back(part.levels.back().front().token);
        }
    }
}

std::optional<msg::Proposal> ExitEvaluator::candidates_of(const ExitPart& part) const {
    const TokenTree& tree = part.state->tree();
    std::map<std::pair<NodeId, TokenId>, float> updated;  // the exit's log_prob of a child
    std::map<NodeId, float> worst;                        // of what it proposed there at all
    for (const ExitRow& row : part.rows) {
        for (const Candidate& best : row.best) updated[{row.node, best.token}] = best.log_prob;
        if (!row.best.empty()) worst[row.node] = row.best.back().log_prob;
    }
    const auto log_prob_of = [&](const TreeNode& node) {
        const auto known = updated.find({node.parent, node.token});
        if (known != updated.end()) return known->second;
        const auto least = worst.find(node.parent);
        return least == worst.end() ? node.log_prob : std::min(node.log_prob, least->second);
    };
    msg::Proposal proposal = proposal_of(*part.state);
    PathWriter paths{tree};
    bool alive = false;
    for (const ExitRow& row : part.rows) {
        if (tree.find(row.node) == nullptr) continue;
        alive = true;
        if (!paths.write(proposal, row.node, log_prob_of)) break;
    }
    if (!alive) return std::nullopt;
    for (const ExitRow& row : part.rows) {
        if (tree.find(row.node) == nullptr) continue;
        const auto at = paths.write(proposal, row.node, log_prob_of);
        if (!at) break;
        for (const Candidate& best : news(tree, row)) {
            (void)add(proposal, {.token = best.token,
                                 .parent = *at,
                                 .origin = msg::Origin::Exit,
                                 .log_prob = best.log_prob});
        }
    }
    return proposal;
}

/// The candidates after a row that are not in the tree yet.
std::vector<Candidate> ExitEvaluator::news(const TokenTree& tree, const ExitRow& row) const {
    const std::vector<TokenId> there = children_of(tree, row.node);
    std::vector<Candidate> proposed;
    for (const Candidate& best : row.best) {
        const bool known = std::find(there.begin(), there.end(), best.token) != there.end();
        if (!known && proposed.size() < options_.top) proposed.push_back(best);
    }
    return proposed;
}

/// Whether the head's own next token after a row is worth a row of its own at once.
bool ExitEvaluator::starts_early(const ExitPart& part, const ExitRow& row) const {
    const RequestState& state = *part.state;
    if (!row.newest || row.best.empty() || state.tree().find(row.node) == nullptr) return false;
    const Candidate& best = row.best.front();
    if (options_.gate > 0.0F && !(best.log_prob > std::log(options_.gate))) return false;
    // Rows that have no verdict yet: from the root down to this one.
    const Position waiting = row.position - state.tree().root().position + 1;
    const auto most = static_cast<Position>(options_.early_max);
    if (waiting > state.spec().speculation.depth_max(most)) return false;
    return state.finish_rule().after(best.token, row.position + 1) == FinishReason::None;
}

std::optional<msg::Proposal> ExitEvaluator::early(const ExitPart& part) const {
    msg::Proposal proposal = proposal_of(*part.state);
    PathWriter paths{part.state->tree()};
    // The path has been sent already: its probability counts as 1.
    const auto certain = [](const TreeNode&) { return 0.0F; };
    bool any = false;
    for (const ExitRow& row : part.rows) {
        if (!starts_early(part, row)) continue;
        const auto at = paths.write(proposal, row.node, certain);
        const Candidate& best = row.best.front();
        any = (at && add(proposal, {.token = best.token,
                                    .parent = *at,
                                    .origin = msg::Origin::Exit,
                                    .log_prob = best.log_prob})) ||
              any;
    }
    if (!any) return std::nullopt;
    return proposal;
}

std::optional<msg::Proposal> ExitEvaluator::ahead(const AheadPart& part) const {
    if (part.state->text().size() != part.committed.size()) return std::nullopt;
    msg::Proposal proposal = proposal_of(*part.state);
    for (const AheadToken& token : tokens_of(part)) {
        (void)add(proposal, {.token = token.candidate.token,
                             .parent = token.parent,
                             .origin = msg::Origin::Heads,
                             .log_prob = token.candidate.log_prob});
    }
    if (proposal.count == 0) return std::nullopt;
    return proposal;
}

/// Parents before their children, as far as a proposal takes them.
std::vector<ExitEvaluator::AheadToken> ExitEvaluator::tokens_of(const AheadPart& part) const {
    return options_.ahead_tree.empty() ? product_of(part) : fixed_tree_of(part);
}

/// All tokens of a level below each of the level before it.
std::vector<ExitEvaluator::AheadToken> ExitEvaluator::product_of(const AheadPart& part) {
    std::vector<AheadToken> tokens;
    std::vector<std::int16_t> parents{msg::kBelowRoot};
    for (const std::vector<Candidate>& level : part.levels) {
        std::vector<std::int16_t> next;
        for (const std::int16_t parent : parents) {
            for (const Candidate& candidate : level) {
                if (tokens.size() == kProposalNodesMax) return tokens;
                next.push_back(static_cast<std::int16_t>(tokens.size()));
                tokens.push_back({parent, candidate});
            }
        }
        parents = std::move(next);
    }
    return tokens;
}

/// Nodes of ranks that a head has no token for are left out, with those below them.
std::vector<ExitEvaluator::AheadToken> ExitEvaluator::fixed_tree_of(const AheadPart& part) const {
    struct Place {
        std::int16_t at = msg::kBelowRoot;  // in `tokens`
        std::size_t depth = 0;
        bool there = false;
    };
    std::vector<AheadToken> tokens;
    std::vector<Place> places;  // of the tree's nodes
    for (const AheadNode& node : options_.ahead_tree) {
        const Place root{.there = true};
        const Place& parent =
            node.parent < 0 ? root : places[static_cast<std::size_t>(node.parent)];
        Place place{.depth = parent.depth + 1};
        place.there = parent.there && parent.depth < part.levels.size() &&
                      node.rank < part.levels[parent.depth].size();
        if (place.there) {
            place.at = static_cast<std::int16_t>(tokens.size());
            tokens.push_back({parent.at, part.levels[parent.depth][node.rank]});
        }
        places.push_back(place);
    }
    return tokens;
}

// ---- Comparison with the text

void ExitEvaluator::remember(const ExitPart& part) {
    const RequestState& state = *part.state;
    ExitCandidates said{.request = state.request(), .attempt = state.attempt()};
    for (const ExitRow& row : part.rows) {
        if (state.tree().find(row.node) == nullptr) continue;
        ExitCandidates::Place place{.at = row.position + 1, .path = row.path};
        if (options_.sends_candidates) {
            for (const Candidate& name : news(state.tree(), row))
                place.tokens.push_back(name.token);
        } else if (starts_early(part, row)) {
            place.tokens.push_back(row.best.front().token);
        }
        if (starts_early(part, row) && options_.proposes) ++rows_caused_;
        if (!place.tokens.empty()) said.places.push_back(std::move(place));
    }
    book_.add(std::move(said));
    ++parts_remembered_;
}

/// In a fixed tree each node has children of its own, so a place knows the path before it.
void ExitEvaluator::remember(const AheadPart& part) {
    const bool fixed = !options_.ahead_tree.empty();
    ExitCandidates said{
        .request = part.state->request(), .attempt = part.state->attempt(), .chained = !fixed};
    const auto begin = static_cast<Position>(part.committed.size());
    if (fixed) {
        const std::vector<AheadToken> tokens = tokens_of(part);
        std::map<std::int16_t, ExitCandidates::Place> places;  // by parent
        std::vector<std::vector<TokenId>> paths;
        for (const AheadToken& token : tokens) {
            std::vector<TokenId> path;
            if (token.parent >= 0) path = paths[static_cast<std::size_t>(token.parent)];
            ExitCandidates::Place& place = places[token.parent];
            place.at = begin + static_cast<Position>(path.size());
            place.path = path;
            place.tokens.push_back(token.candidate.token);
            path.push_back(token.candidate.token);
            paths.push_back(std::move(path));
        }
        for (auto& [parent, place] : places) said.places.push_back(std::move(place));
        rows_caused_ += std::min(tokens.size(), worth_.rows_max());
    } else {
        Position at = begin;
        std::size_t width = 1;
        for (const std::vector<Candidate>& level : part.levels) {
            ExitCandidates::Place place{.at = at++};
            for (const Candidate& best : level) place.tokens.push_back(best.token);
            width *= level.size();
            rows_caused_ += width;
            said.places.push_back(std::move(place));
        }
    }
    book_.add(std::move(said));
    ++parts_remembered_;
}

void ExitEvaluator::learn(const RequestState& state) {
    for (const std::size_t right : book_.resolve(state.request(), state.attempt(), state.text()))
        worth_.learned(right);
}

void ExitEvaluator::spent(double micros, bool delayed) {
    const auto parts =
        static_cast<double>(std::max<std::size_t>(std::exchange(parts_remembered_, 0), 1));
    const auto rows = static_cast<double>(std::exchange(rows_caused_, 0));
    worth_.spent(micros / parts, delayed, rows / parts);
}

}  // namespace paceline
