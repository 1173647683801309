#include "actors/segment/scheduling/row_budget.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

namespace paceline {
namespace {

// A batch with prompts takes at most so many times as long as its verify rows alone, if they leave
// room for more than the prompts' share.
constexpr double kPromptDelay = 2.0;

bool begins_with_root(const SchedulableRequest& candidate) {
    const std::vector<NodeId>& nodes = candidate.order.nodes;
    return !nodes.empty() && nodes.front() == candidate.entry->state->tree().root().id;
}

std::vector<RowClaim> claims_of(std::span<const SchedulableRequest> candidates) {
    std::vector<RowClaim> claims;
    for (const SchedulableRequest& each : candidates) {
        const RequestState& state = *each.entry->state;
        claims.push_back({.prompt = each.prefills(),
                          .wanted = each.wanted,
                          .left = state.text().size() - state.slots().size(),
                          .arrived = state.request().value,
                          .yields = yielding_rows(each.order, each.wanted)});
    }
    return claims;
}

}  // namespace

/// Whether a method has its rows as configured in this turn.
bool RowBudget::takes_all() const {
    return account_->takes_all() && account_->allowed() > 0;
}

/// The calibrated probabilities of the nodes' paths, not more than the turn allows. Of nodes whose
/// order the calibration changes the smaller probability counts, so that parents stay first.
void RowBudget::weigh(SchedulableRequest& candidate) const {
    if (takes_all()) return;
    const SchedulerEntry& entry = *candidate.entry;
    const TokenTree& tree = entry.state->tree();
    std::map<NodeId, double> paths;
    for (const TreeNode& node : tree.nodes()) {
        const auto above = paths.find(node.parent);
        const bool is_root = node.id == tree.root().id;
        paths[node.id] = is_root || above == paths.end()
                             ? 1.0
                             : above->second * account_->probability(node, entry.draws());
    }
    const bool has_root = begins_with_root(candidate);
    const auto most = static_cast<std::size_t>(account_->allowed()) + (has_root ? 1 : 0);
    if (candidate.order.nodes.size() > most) candidate.order.nodes.resize(most);
    double least = 1.0;
    for (const NodeId node : candidate.order.nodes) {
        least = std::min(least, paths.at(node));
        candidate.probabilities.push_back(least);
    }
    if (has_root || candidate.order.nodes.empty()) return;
    // Behind others of its request: as many as pay.
    const BatchSize behind{.requests = 1, .context = entry.state->text().size()};
    candidate.order.nodes.resize(account_->rows_ahead(candidate.probabilities, behind));
}

/// The roots, and of all other candidates of all requests the most probable ones, as many as pay.
void RowBudget::choose(std::span<SchedulableRequest> candidates, Micros now) const {
    std::vector<double> probabilities;
    BatchSize size;
    Micros waited{0};
    for (SchedulableRequest& each : candidates) {
        if (!begins_with_root(each)) continue;
        ++size.requests;
        size.context += each.entry->state->text().size();
        waited = std::max(waited, now - each.entry->decided);
        probabilities.insert(probabilities.end(), each.probabilities.begin() + 1,
                             each.probabilities.end());
    }
    if (probabilities.empty()) return;
    std::sort(probabilities.begin(), probabilities.end(), std::greater<>{});
    const std::uint32_t rows = verify_room(claims_of(candidates), limits(size, 0));
    const std::size_t room = rows - std::min(rows, size.requests);
    if (probabilities.size() > room) probabilities.resize(room);
    const std::size_t taken = account_->rows_of_round(probabilities, size, waited);
    const double least = taken == 0 ? 2.0 : probabilities[taken - 1];
    for (SchedulableRequest& each : candidates) {
        if (!begins_with_root(each)) continue;
        const auto end = std::find_if(each.probabilities.begin() + 1, each.probabilities.end(),
                                      [&](double p) { return p < least; });
        each.wanted = static_cast<std::uint32_t>(end - each.probabilities.begin());
        each.order.nodes.resize(each.wanted);
    }
}

/// Prompts may make a batch as long again as its verify rows do; kPromptDelay.
RowLimits RowBudget::limits(const BatchSize& verified, std::uint64_t prompt_context) const {
    const std::uint32_t rows = options_.batch_rows();
    RowLimits limits{.batch = rows, .verify_max = kVerifyRowsMax};
    limits.prompts_least = std::max(
        1U,
        static_cast<std::uint32_t>(std::lround(options_.prompt_share * static_cast<float>(rows))));
    if (account_ == nullptr) return limits;
    limits.beside = [this, verified, prompt_context](std::uint32_t verify_rows) {
        BatchSize size = verified;
        size.rows = verify_rows;
        return account_->rows_beside(size, prompt_context, kPromptDelay);
    };
    return limits;
}

void RowBudget::share(std::span<SchedulableRequest> candidates, Micros now) const {
    if (chooses() && !takes_all()) choose(candidates, now);
    BatchSize verified;
    std::uint64_t prompt_context = 0;  // of the prompt that gets most rows: the shortest left
    std::size_t least_left = std::numeric_limits<std::size_t>::max();
    for (const SchedulableRequest& each : candidates) {
        if (each.prefills()) {
            const std::size_t left = each.entry->prefill_left();
            if (left >= least_left) continue;
            least_left = left;
            prompt_context = each.entry->state->slots().size();
            continue;
        }
        ++verified.requests;
        verified.context += each.entry->state->text().size();
    }
    std::vector<RowClaim> claims = claims_of(candidates);
    share_rows(claims, limits(verified, prompt_context));
    for (std::size_t i = 0; i < claims.size(); ++i)
        candidates[i].granted = whole_branches(candidates[i].order, claims[i].granted);
}

void RowBudget::charge(const msg::Batch& batch, std::size_t running, bool alone, Micros now) {
    if (account_ == nullptr) return;
    std::vector<SpeculationAccount::Part> parts;
    BatchSize size;
    PromptRows prompts;
    for (const msg::BatchPart& part : batch.parts) {
        if (part.kind == msg::BatchKind::Prefill) {
            prompts.rows += part.rows;
            prompts.context += static_cast<std::uint64_t>(part.base) * part.rows;
            prompts.teaches = prompts.teaches && part.last.value == 0;
            continue;
        }
        parts.push_back({.request = part.request,
                         .batch = part.batch,
                         .candidates = static_cast<int>(part.rows) - 1});
        ++size.requests;
        size.rows += part.rows;
        size.context += static_cast<std::uint64_t>(part.base);
    }
    if (prompts.rows > 0) {
        account_->disturbed();
        prompts.context /= prompts.rows;
    }
    prompts.teaches = prompts.teaches && !std::exchange(prompts_before_, parts.empty());
    if (parts.empty()) return;
    account_->formed(parts, size, prompts, std::max(running, parts.size()), alone, now);
}

}  // namespace paceline
