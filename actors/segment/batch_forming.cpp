// The second half of BatchScheduler: which rows make the next batch. The first half
// (batch_scheduler.cpp) is the states of requests, proposals and verdicts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "actors/segment/batch_scheduler.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

// A batch with prompts takes at most so many times as long as its verify rows alone, if they leave
// room for more than the prompts' share.
constexpr double kPromptDelay = 2.0;

}  // namespace

// ---- The rows of one request

/// Whether the token after this node could be committed, and the client wants it verified.
bool BatchScheduler::worth_a_row(const SchedulerEntry& entry, const TreeNode& node) const {
    const FinishRule& rule = entry.state->finish_rule();
    const TreeNode& root = entry.state->tree().root();
    // The root is committed and did not end the answer: an end token there comes from the prompt.
    if (node.id == root.id) return rule.room_at(node.position + 1) >= 1;
    const SpeculationLimits& limits = entry.limits();
    const Position depth = node.position - root.position;
    if (!limits.on || limits.depth_max(depth) < depth) return false;
    return rule.after(node.token, node.position) == FinishReason::None;
}

/// Log probability of a path below which no row is sent; of 0: -inf.
float BatchScheduler::verify_reach_min_log(const SchedulerEntry& entry) const {
    return std::log(std::max(options_.verify_reach_min, entry.limits().verify_reach_min));
}

RowOrder BatchScheduler::unsent_nodes(const SchedulerEntry& entry) const {
    if (limits_rows() && account_->allowed() == 0) {
        const TreeNode& only = entry.state->tree().root();
        if (only.sent() || !entry.in_flight.empty() || !worth_a_row(entry, only)) return {};
        return {.nodes = {only.id}};
    }
    const TreeNode& root = entry.state->tree().root();
    const bool first_round =
        options_.start == StartRule::Lockstep && entry.round_root == kNoRoot && !root.sent();
    if (first_round) return {.nodes = {root.id}};
    return options_.shape == BatchShape::Chain ? unsent_trunk(entry) : unsent_tree(entry);
}

RowOrder BatchScheduler::unsent_trunk(const SchedulerEntry& entry) const {
    const TokenTree& tree = entry.state->tree();
    const float reach_min = verify_reach_min_log(entry);
    // A verdict carries kGammaMax accepted tokens, so a batch may not be deeper than that.
    const std::size_t most = std::min(options_.rows_max, kGammaMax + 1);
    std::vector<const TreeNode*> found;
    for (const TreeNode* node = &tree.root(); node != nullptr && found.size() < most;
         node = tree.trunk_child(node->id)) {
        if (!worth_a_row(entry, *node) || node->path_log_prob < reach_min) break;
        if (!node->sent()) found.push_back(node);
    }
    return observed_last(tree, found, options_.rows_max);
}

RowOrder BatchScheduler::unsent_tree(const SchedulerEntry& entry) const {
    const TokenTree& tree = entry.state->tree();
    const Position deepest = tree.root().position + static_cast<Position>(kGammaMax);
    const float reach_min = verify_reach_min_log(entry);
    std::vector<const TreeNode*> found;
    std::vector<NodeId> reachable;  // sent, or in `found`: ascending, as the tree's nodes are
    for (const TreeNode& node : tree.nodes()) {
        const bool is_root = node.id == tree.root().id;
        if (!is_root && !std::binary_search(reachable.begin(), reachable.end(), node.parent)) {
            continue;
        }
        if (!worth_a_row(entry, node) || node.path_log_prob < reach_min || node.position > deepest)
            continue;
        reachable.push_back(node.id);
        if (!node.sent()) found.push_back(&node);
    }
    // A child is at most as probable as its parent, and younger: it comes after it.
    std::sort(found.begin(), found.end(), [](const TreeNode* a, const TreeNode* b) {
        return a->path_log_prob != b->path_log_prob ? a->path_log_prob > b->path_log_prob
                                                    : a->id < b->id;
    });
    return observed_last(tree, found, options_.rows_max);
}

bool BatchScheduler::may_start(const SchedulerEntry& entry, Micros now) const {
    const bool rounds = options_.start == StartRule::Lockstep;
    if (entry.in_flight.size() >= (rounds ? 1 : options_.batches_in_flight_max)) return false;
    if (!entry.in_flight.empty()) return true;  // if there are rows: unsent_nodes() looks
    return !waits_for_draft(entry) || now >= entry.wait_until;
}

/// Rows of the prompt up to its end, or to that of a prefix that not all segments compute.
std::size_t BatchScheduler::prefill_left(const SchedulerEntry& entry) {
    const std::size_t done = entry.state->slots().size();
    const std::size_t cached = entry.slots.committed().size();
    return (done < cached ? cached : entry.state->text().size() - 1) - done;
}

// ---- Who shares the batch

/// All requests with rows to send: first those that found no room most often, then verify before
/// prefill, then those served longest ago.
std::vector<BatchScheduler::SchedulableRequest> BatchScheduler::candidates(Micros now) {
    std::vector<SchedulableRequest> found;
    for (auto& [request, entry] : entries_) {
        if (entry.state->over() || pages_.is_blocked(entry) ||
            pages_.waits_for_prefix(entry, entries_))
            continue;
        if (!entry.looked_up) pages_.look_up(entry);
        SchedulableRequest candidate{.entry = &entry};
        if (!entry.state->prefilled()) {
            candidate.wanted = static_cast<std::uint32_t>(
                std::min<std::size_t>(prefill_left(entry), options_.prefill_rows));
        } else if (may_start(entry, now)) {
            candidate.order = unsent_nodes(entry);
            if (limits_rows()) weigh(candidate);
            candidate.wanted = static_cast<std::uint32_t>(candidate.order.nodes.size());
        }
        if (candidate.wanted > 0) found.push_back(std::move(candidate));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const SchedulableRequest& a, const SchedulableRequest& b) {
                         if (a.entry->passed != b.entry->passed)
                             return a.entry->passed > b.entry->passed;
                         if (a.prefills() != b.prefills()) return b.prefills();
                         return a.entry->served < b.entry->served;
                     });
    return found;
}

bool BatchScheduler::limits_rows() const {
    return account_ != nullptr && !options_.exits_start_early;
}

bool BatchScheduler::draws(const SchedulerEntry& entry) const {
    return !entry.state->spec().sampling.greedy();
}

/// The calibrated probabilities of the nodes' paths, not more than the turn allows. Of nodes whose
/// order the calibration changes the smaller probability counts, so that parents stay first.
void BatchScheduler::weigh(SchedulableRequest& candidate) const {
    const SchedulerEntry& entry = *candidate.entry;
    const TokenTree& tree = entry.state->tree();
    std::map<NodeId, double> paths;
    for (const TreeNode& node : tree.nodes()) {
        const auto above = paths.find(node.parent);
        const bool is_root = node.id == tree.root().id;
        paths[node.id] = is_root || above == paths.end()
                             ? 1.0
                             : above->second * account_->probability(node, draws(entry));
    }
    const bool has_root =
        !candidate.order.nodes.empty() && candidate.order.nodes.front() == tree.root().id;
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
void BatchScheduler::choose_rows(std::vector<SchedulableRequest>& candidates, Micros now) const {
    std::vector<double> probabilities;
    BatchSize size;
    Micros waited{0};
    for (SchedulableRequest& each : candidates) {
        if (each.prefills()) continue;
        if (each.order.nodes.front() != each.entry->state->tree().root().id) continue;
        ++size.requests;
        size.context += each.entry->state->text().size();
        waited = std::max(waited, now - each.entry->decided);
        probabilities.insert(probabilities.end(), each.probabilities.begin() + 1,
                             each.probabilities.end());
    }
    if (probabilities.empty()) return;
    std::sort(probabilities.begin(), probabilities.end(), std::greater<>{});
    const std::uint32_t rows = verify_room(claims_of(candidates), row_limits(size, 0));
    const std::size_t room = rows - std::min(rows, size.requests);
    if (probabilities.size() > room) probabilities.resize(room);
    const std::size_t taken = account_->rows_of_round(probabilities, size, waited);
    const double least = taken == 0 ? 2.0 : probabilities[taken - 1];
    for (SchedulableRequest& each : candidates) {
        if (each.prefills() || each.order.nodes.front() != each.entry->state->tree().root().id)
            continue;
        const auto end = std::find_if(each.probabilities.begin() + 1, each.probabilities.end(),
                                      [&](double p) { return p < least; });
        each.wanted = static_cast<std::uint32_t>(end - each.probabilities.begin());
        each.order.nodes.resize(each.wanted);
    }
}

std::vector<RowClaim> BatchScheduler::claims_of(
    std::span<const SchedulableRequest> candidates) const {
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

/// Prompts may make a batch as long again as its verify rows do; kPromptDelay.
RowLimits BatchScheduler::row_limits(const BatchSize& verified,
                                     std::uint64_t prompt_context) const {
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

void BatchScheduler::share_rows(std::vector<SchedulableRequest>& candidates) const {
    BatchSize verified;
    std::uint64_t prompt_context = 0;  // of the prompt that gets most rows: the shortest left
    std::size_t least_left = std::numeric_limits<std::size_t>::max();
    for (const SchedulableRequest& each : candidates) {
        if (each.prefills()) {
            const std::size_t left = prefill_left(*each.entry);
            if (left >= least_left) continue;
            least_left = left;
            prompt_context = each.entry->state->slots().size();
            continue;
        }
        ++verified.requests;
        verified.context += each.entry->state->text().size();
    }
    std::vector<RowClaim> claims = claims_of(candidates);
    paceline::share_rows(claims, row_limits(verified, prompt_context));
    for (std::size_t i = 0; i < claims.size(); ++i)
        candidates[i].granted = whole_branches(candidates[i].order, claims[i].granted);
}

std::optional<msg::Batch> BatchScheduler::next_batch(Micros now) {
    for (auto& [request, entry] : entries_) {
        if (entry.half_until && now >= *entry.half_until) entry.half_until.reset();
    }
    // If no part was formed, all its requests were blocked, and the next round tries others.
    while (true) {
        std::vector<SchedulableRequest> all = candidates(now);
        if (all.empty()) return std::nullopt;
        msg::Batch batch = form(all, now);
        if (!batch.parts.empty()) return batch;
    }
}

msg::Batch BatchScheduler::form(std::vector<SchedulableRequest>& candidates, Micros now) {
    for (std::size_t i = options_.requests_max; i < candidates.size(); ++i) {
        ++candidates[i].entry->passed;
    }
    if (candidates.size() > options_.requests_max) candidates.resize(options_.requests_max);
    if (limits_rows()) choose_rows(candidates, now);
    share_rows(candidates);
    const bool alone = on_their_way() == 0;
    ++batches_;
    msg::Batch batch{};
    for (const bool prefills : {false, true}) {
        for (const SchedulableRequest& each : candidates) {
            if (each.prefills() == prefills) add_part(batch, each, now);
        }
    }
    if (account_ != nullptr) charge(batch, alone, now);
    return batch;
}

/// Requests with verify batches that have no verdict yet.
std::size_t BatchScheduler::on_their_way() const {
    return static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
            return !entry.second.state->over() && !entry.second.in_flight.empty();
        }));
}

/// Tells the account which batch goes out.
void BatchScheduler::charge(const msg::Batch& batch, bool alone, Micros now) {
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
    const auto running = static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
            return !entry.second.state->over() && entry.second.state->prefilled();
        }));
    account_->formed(parts, size, prompts, std::max(running, parts.size()), alone, now);
}

void BatchScheduler::add_part(msg::Batch& batch, const SchedulableRequest& candidate, Micros now) {
    SchedulerEntry& entry = *candidate.entry;
    if (candidate.granted == 0) {
        // A prompt had its turn, and waits for shorter ones: it takes no place of others for that.
        entry.passed = candidate.prefills() ? 0 : entry.passed + 1;
        return;
    }
    const auto base = static_cast<Position>(entry.state->slots().size());
    const bool again =
        candidate.prefills() && static_cast<std::size_t>(base) < entry.slots.committed().size();
    const std::uint32_t rows = candidate.prefills() ? add_prefill(batch, entry, candidate.granted)
                                                    : add_verify(batch, entry, candidate);
    if (rows == 0) return pages_.block(entry, static_cast<std::uint32_t>(entries_.size()));
    batch.parts.push_back(
        {.request = entry.state->request(),
         .attempt = entry.state->attempt(),
         .batch = BatchId{entry.next_batch++},
         .kind = candidate.prefills() ? msg::BatchKind::Prefill : msg::BatchKind::Verify,
         .base = base,
         .rows = rows,
         .hold = 0,
         .last = StageId{static_cast<std::uint16_t>(again ? entry.lost_to : 0)}});
    entry.passed = 0;
    entry.served = batches_;
    if (candidate.prefills()) {
        entry.wait_until = now + options_.proposal_wait;
        return;
    }
    entry.round_root = entry.state->tree().root().position;
    const bool held = options_.start == StartRule::Lockstep && waits_for_draft(entry) &&
                      entry.received.halfway < entry.round_root;
    if (held) entry.half_until = now + options_.proposal_wait;
}

std::uint32_t BatchScheduler::add_prefill(msg::Batch& batch,
                                          SchedulerEntry& entry,
                                          std::uint32_t rows) {
    const std::vector<TokenId>& text = entry.state->text();
    const std::size_t begin = entry.state->slots().size();
    for (std::size_t position = begin; position < begin + rows; ++position) {
        const bool again = position < entry.slots.committed().size();
        const Result<KvSlot> slot = again ? Result<KvSlot>{entry.slots.committed()[position]}
                                          : entry.slots.allocate(static_cast<Position>(position));
        if (!slot) return static_cast<std::uint32_t>(position - begin);
        if (!again) entry.slots.commit(slot.value());
        if (planted(PlantedBug::PrefixUnproven)) pages_.publish(entry);
        const bool retained = again && entry.supplier && slot.value() < entry.supplier->slots;
        batch.rows.push_back(
            {.node = TokenTree::kNoNode,
             .parent = msg::kNoParent,
             .token = text[position],
             .position = static_cast<Position>(position),
             .slot = slot.value(),
             .start = static_cast<std::uint16_t>(retained ? entry.supplier->end : 0)});
    }
    return rows;
}

std::uint32_t BatchScheduler::add_verify(msg::Batch& batch,
                                         SchedulerEntry& entry,
                                         const SchedulableRequest& chosen) {
    TokenTree& tree = entry.state->tree();
    std::vector<NodeId> sent;
    for (std::uint32_t i = 0; i < chosen.granted; ++i) {
        const TreeNode& node = *tree.find(chosen.order.nodes[i]);
        const TreeNode* above = tree.find(node.parent);
        const bool is_root = node.id == tree.root().id;
        if (!is_root && !above->sent()) continue;  // its parent found no slot
        const auto ahead = entry.ahead_rows.find(node.id);
        const bool begun = ahead != entry.ahead_rows.end();
        const Result<KvSlot> slot =
            begun ? Result<KvSlot>{ahead->second.slot}
                  : entry.slots.allocate(node.position, is_root ? SlotRule{} : candidate_rule());
        if (!slot) continue;  // it waits, and what is below it
        sent.push_back(node.id);
        batch.rows.push_back(tree.send(node.id, slot.value()));
        if (!begun) continue;
        batch.rows.back().start = static_cast<std::uint16_t>(ahead->second.start);
        batch.rows.back().tensor_row = ahead->second.tensor_row;
        entry.ahead_rows.erase(ahead);
    }
    if (sent.empty()) return 0;
    if (entry.in_flight.empty() && waits_for_draft(entry)) {
        ++entry.silent;
        ++proposals_.waits_expired;
    }
    if (entry.open) resolved_.push_back(*std::exchange(entry.open, std::nullopt));
    const auto rows = static_cast<std::uint32_t>(sent.size());
    entry.in_flight.push_back(std::move(sent));
    return rows;
}

}  // namespace paceline
