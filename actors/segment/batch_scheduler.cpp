#include "actors/segment/batch_scheduler.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <span>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

// A draft that misses this many waits in a row counts as dead or too slow.
constexpr std::uint32_t kSilentWaitsMax = 3;
// A draft that has so many times in a row had nothing to propose is not waited for.
constexpr std::uint32_t kEmptyAnswersMax = 3;
constexpr std::size_t kDrawsAheadMax = 2 * kGammaMax;  // that wait for their root, of one request
// Less probable than anything: keeps sums along a path finite.
constexpr float kLogProbMin = -1000.0F;

Status check_range(const char* field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return {};
    return Error{Errc::BadArgument,
                 fmt::format("dispatch: {} = {}, must be {} .. {}", field, value, low, high)};
}

/// The node of `proposal` where the text that was committed after its root ends (kBelowRoot: no
/// text was). Nothing if the text went on in another way.
std::optional<std::int16_t> follow_text(const msg::Proposal& proposal,
                                        std::span<const TokenId> text) {
    std::int16_t at = msg::kBelowRoot;
    std::size_t i = 0;
    for (const TokenId token : text) {
        while (i < proposal.count &&
               (proposal.nodes[i].parent != at || proposal.nodes[i].token != token)) {
            ++i;
        }
        if (i == proposal.count) return std::nullopt;
        at = static_cast<std::int16_t>(i++);
    }
    return at;
}

}  // namespace

Status validate(const DispatchOptions& options) {
    if (Status rows = check_range("rows_max", options.rows_max, 1, kVerifyRowsMax); !rows)
        return rows;
    if (Status batches =
            check_range("batches_in_flight_max", options.batches_in_flight_max, 1, kSegmentsMax);
        !batches) {
        return batches;
    }
    if (Status rows = check_range("prefill_rows", options.prefill_rows, 1, kBatchRowsMax); !rows) {
        return rows;
    }
    if (Status parts = check_range("requests_max", options.requests_max, 1, kBatchPartsMax);
        !parts) {
        return parts;
    }
    if (!(options.prompt_share >= 0.0F && options.prompt_share <= 0.9F)) {
        return Error{Errc::BadArgument, fmt::format("dispatch: prompt_share = {}, must be 0 .. 0.9",
                                                    options.prompt_share)};
    }
    if (!(options.verify_reach_min >= 0.0F && options.verify_reach_min <= 1.0F)) {
        return Error{Errc::BadArgument, fmt::format("dispatch: reach_min = {}, must be 0 .. 1",
                                                    options.verify_reach_min)};
    }
    if (options.proposal_wait < Micros{0}) {
        return Error{Errc::BadArgument,
                     fmt::format("dispatch: proposal_wait = {} us, must not be negative",
                                 options.proposal_wait.count())};
    }
    return {};
}

BatchScheduler::BatchScheduler(DispatchOptions options,
                               std::int32_t kv_slots,
                               SpeculationAccount* account,
                               std::vector<RetainedBy> retained)
    : options_{options}, account_{account}, pages_{kv_slots, std::move(retained)} {
    PACE_CHECK(validate(options).ok(), "dispatch options that were not validated");
}

void BatchScheduler::begin(const std::shared_ptr<RequestState>& state, Micros now) {
    drop(state->request());
    const BeginPayload& spec = state->spec();
    if (!planted(PlantedBug::LostKeysTrusted))
        pages_.follow_losses(spec.cache_generation, spec.keys_lost);
    const auto made = entries_.emplace(
        state->request(),
        SchedulerEntry{.state = state,
                       .slots = pages_.slots(
                           spec.context, planted(PlantedBug::SaltIgnored) ? "" : spec.cache_salt)});
    restart(made.first->second, now);
}

void BatchScheduler::drop(RequestId request) {
    const auto found = entries_.find(request);
    if (found == entries_.end()) return;
    free_ahead_rows(found->second);
    entries_.erase(found);  // gives all its slots back
    if (planted(PlantedBug::SlotsLeakOnReplay)) pages_.leak();
}

void BatchScheduler::end(RequestId request) {
    if (account_ != nullptr && entries_.contains(request)) account_->changed(request);
    drop(request);
    // Also of one without pages, or whose Begin has not come: the conductor may have preempted it
    // for a shortage, which is then named again.
    pages_.note_reclaimable();
}

/// Each running request may soon need a page for its text.
SlotRule BatchScheduler::candidate_rule() const {
    return {.pages_left = static_cast<std::int32_t>(entries_.size()), .leaves_one_slot = true};
}

void BatchScheduler::end_all() {
    while (!entries_.empty()) end(entries_.begin()->first);
}

/// A new attempt: no batch was sent and no proposal received.
void BatchScheduler::restart(SchedulerEntry& entry, Micros now) const {
    entry.in_flight.clear();
    entry.received = {};
    entry.round_root = kNoRoot;
    entry.wait_until = now + options_.proposal_wait;
    entry.decided = now;
    entry.half_until.reset();
    entry.open.reset();
    entry.blocked_at.reset();
    entry.passed = 0;
    for (auto& proposal : entry.ahead) proposal.reset();
    entry.drawn_ahead.clear();
    if (account_ != nullptr) account_->changed(entry.state->request());
}

void BatchScheduler::draft_changed(bool present) {
    draft_present_ = present;
    for (auto& [request, entry] : entries_) {
        entry.silent = 0;
        if (!present) entry.half_until.reset();
    }
}

// ---- Proposals

void BatchScheduler::propose(const msg::Proposal& proposal, ProposalSource source, Micros now) {
    const auto found = entries_.find(proposal.route.request);
    if (found == entries_.end()) return;
    SchedulerEntry& entry = found->second;
    if (!entry.limits().on) return;
    if (proposal.root_position > entry.state->tree().root().position) {
        std::optional<msg::Proposal>& kept = entry.ahead[static_cast<std::size_t>(source)];
        const bool same_root = kept && kept->root_position == proposal.root_position;
        const msg::ProposalState before = same_root ? kept->state : proposal.state;
        kept = proposal;
        kept->state = std::max(before, proposal.state);
    } else {
        merge(entry, proposal, source, now);
    }
}

void BatchScheduler::merge(SchedulerEntry& entry,
                           const msg::Proposal& proposal,
                           ProposalSource source,
                           Micros now) {
    const std::span<const TokenId> text = entry.state->text();
    const auto at = static_cast<std::size_t>(proposal.root_position);
    if (entry.state->over() || text[at] != proposal.root_token) {
        ++proposals_.outdated;
        return;
    }
    if (source == ProposalSource::Draft) receive(entry, proposal, now);
    const std::optional<std::int16_t> top = follow_text(proposal, text.subspan(at + 1));
    if (!top) {
        ++proposals_.outdated;
        return;
    }
    ++proposals_.used;
    // Made for an older root, but it contains this one.
    if (entry.open && !entry.open->prepared && *top != msg::kBelowRoot) {
        entry.open->prepared = true;
        entry.open->origin = proposal.nodes[static_cast<std::size_t>(*top)].origin;
    }
    grow(entry, proposal, *top, source);
}

void BatchScheduler::take_drawn(const msg::Draw& draw) {
    const auto found = entries_.find(draw.route.request);
    if (found == entries_.end() || found->second.state->over()) return;
    SchedulerEntry& entry = found->second;
    if (draw.root_position <= entry.state->tree().root().position) return bind(entry, draw);
    // The first ones are kept, so that which ones count does not depend on later ones.
    if (entry.drawn_ahead.size() < kDrawsAheadMax) entry.drawn_ahead.push_back(draw);
}

/// Siblings belong to the row of their parent; without it, or after it, they are deterministic
/// candidates.
void BatchScheduler::bind(SchedulerEntry& entry, const msg::Draw& draw) {
    TokenTree& tree = entry.state->tree();
    const std::span<const TokenId> text = entry.state->text();
    const auto at = static_cast<std::size_t>(draw.root_position);
    const std::span<const TokenId> path = std::span{draw.path}.first(draw.depth);
    const std::span<const TokenId> passed = text.subspan(at + 1);  // since that root
    if (text[at] != draw.root_token || path.size() < passed.size() ||
        !std::equal(passed.begin(), passed.end(), path.begin())) {
        return;
    }
    const TreeNode* node = &tree.root();
    for (const TokenId token : path.subspan(passed.size())) {
        node = tree.child(node->id, token);
        if (node == nullptr) return;
    }
    const auto support = std::span{draw.tokens}.first(draw.support);
    (void)tree.take_drawn(node->id,
                          std::make_shared<const DrawnSiblings>(DrawnSiblings{
                              .support = {support.begin(), support.end()}, .drawn = draw.drawn}));
}

/// Notes how far the draft has come, and whether that was in time.
void BatchScheduler::receive(SchedulerEntry& entry,
                             const msg::Proposal& proposal,
                             Micros now) const {
    const Position root = proposal.root_position;
    ReceivedRoots& received = entry.received;
    received.anything = std::max(received.anything, root);
    if (proposal.state != msg::ProposalState::Growing)
        received.halfway = std::max(received.halfway, root);
    if (proposal.state == msg::ProposalState::Complete) {
        received.complete = std::max(received.complete, root);
        if (proposal.count == 0) ++entry.empty;
    }
    if (proposal.count > 0) entry.empty = 0;
    if (received.halfway >= entry.round_root) entry.half_until.reset();
    // Also one that is not waited for any longer: it would have been in time.
    if (now <= entry.wait_until && received.complete >= wanted_root(entry)) entry.silent = 0;
}

/// Adds the proposal's nodes below `top` to the tree, below the root. The draft's newest proposal
/// says which rows it wants observed, and by which names; others do not know of them.
void BatchScheduler::grow(SchedulerEntry& entry,
                          const msg::Proposal& proposal,
                          std::int16_t top,
                          ProposalSource source) const {
    TokenTree& tree = entry.state->tree();
    std::array<NodeId, kProposalNodesMax> ids{};
    ids.fill(TokenTree::kNoNode);
    for (std::uint32_t i = 0; i < proposal.count; ++i) {
        const msg::ProposedNode& node = proposal.nodes[i];
        if (node.parent < top) continue;
        const NodeId above =
            node.parent == top ? tree.root().id : ids[static_cast<std::size_t>(node.parent)];
        // Its parent found no room, was useless, or had to make room itself.
        const TreeNode* below = tree.find(above);
        if (below == nullptr || !worth_a_row(entry, *below)) continue;
        const float log_prob = std::clamp(node.log_prob, kLogProbMin, 0.0F);
        const bool names = source == ProposalSource::Draft || node.observe != 0;
        ids[i] = tree.grow(above, node.token, log_prob, node.origin,
                           names ? std::optional{node.observe} : std::nullopt)
                     .value_or(TokenTree::kNoNode);
    }
}

Outcome BatchScheduler::follow(RequestId request, const TreeUpdate& step, Micros now) {
    const auto found = entries_.find(request);
    // A late verdict on a request that was stopped.
    if (found == entries_.end()) return {};
    SchedulerEntry& entry = found->second;
    free_ahead_rows(entry);
    for (const TreeNode& node : step.committed) entry.slots.commit(node.slot);
    for (const TreeNode& node : step.dropped) entry.slots.free(node.position, node.slot);
    entry.slots.trim();
    entry.proven = true;
    pages_.publish(entry);
    const TokenTree& tree = entry.state->tree();
    std::erase_if(entry.in_flight, [&](const std::vector<NodeId>& nodes) {
        return std::none_of(nodes.begin(), nodes.end(),
                            [&](NodeId node) { return tree.find(node) != nullptr; });
    });
    entry.wait_until = now + options_.proposal_wait;
    entry.decided = now;
    entry.half_until.reset();
    entry.open.reset();
    entry.blocked_at.reset();
    if (account_ != nullptr) account_->judged(step.judged, draws(entry));
    if (entry.state->over()) {
        end(request);
        return {};
    }
    Outcome outcome{.prepared = step.prepared, .origin = tree.root().origin};
    outcome.open =
        options_.start == StartRule::Lockstep && !step.prepared && waits_for_draft(entry);
    if (outcome.open) entry.open = Outcome{};
    for (std::size_t i = 0; i < entry.ahead.size(); ++i) {
        std::optional<msg::Proposal>& ahead = entry.ahead[i];
        if (!ahead || ahead->root_position > tree.root().position) continue;
        merge(entry, *std::exchange(ahead, std::nullopt), static_cast<ProposalSource>(i), now);
    }
    for (const msg::Draw& draw : std::exchange(entry.drawn_ahead, {})) take_drawn(draw);
    return outcome;
}

std::optional<KvSlot> BatchScheduler::allocate_ahead(RequestId request, NodeId node) {
    const auto found = entries_.find(request);
    if (found == entries_.end()) return std::nullopt;
    SchedulerEntry& entry = found->second;
    const TreeNode* named = entry.state->tree().find(node);
    PACE_CHECK(named != nullptr && !named->sent() && !entry.ahead_rows.contains(node),
               "a node is computed ahead that is not in the tree, or computed already");
    const Result<KvSlot> slot = entry.slots.allocate(named->position, candidate_rule());
    if (!slot) return std::nullopt;
    entry.ahead_rows[node] = {.position = named->position, .slot = slot.value()};
    return slot.value();
}

void BatchScheduler::computed_ahead(RequestId request,
                                    NodeId node,
                                    std::uint32_t start,
                                    std::uint32_t tensor_row) {
    const auto found = entries_.find(request);
    if (found == entries_.end()) return;
    const auto row = found->second.ahead_rows.find(node);
    if (row == found->second.ahead_rows.end()) return;
    row->second.start = start + (planted(PlantedBug::VerifyStartsLate) ? 1 : 0);
    row->second.tensor_row = tensor_row;
}

void BatchScheduler::free_ahead_rows(SchedulerEntry& entry) {
    for (const auto& [node, row] : entry.ahead_rows) {
        if (!planted(PlantedBug::AheadSlotsLeak)) entry.slots.free(row.position, row.slot);
    }
    entry.ahead_rows.clear();
}

std::vector<Outcome> BatchScheduler::take_resolved() {
    return std::exchange(resolved_, {});
}

bool BatchScheduler::halfway(RequestId request, Micros now) {
    const auto found = entries_.find(request);
    if (found == entries_.end()) return true;
    SchedulerEntry& entry = found->second;
    if (entry.state->over() || (entry.half_until && now >= *entry.half_until)) {
        entry.half_until.reset();
    }
    return !entry.half_until;
}

// ---- Waiting

/// The root for which the draft must have sent Complete before the next batch starts.
Position BatchScheduler::wanted_root(const SchedulerEntry& entry) const {
    switch (options_.start) {
        case StartRule::AtOnce:
            return kNoRoot;
        case StartRule::Sequential:
            return entry.state->tree().root().position;
        case StartRule::Lockstep:
            return entry.round_root;  // it began that round together with the last batch
    }
    return kNoRoot;
}

/// Whether to wait for the draft's proposal instead of starting now.
bool BatchScheduler::waits_for_draft(const SchedulerEntry& entry) const {
    if (!draft_present_ || !entry.limits().on || entry.silent >= kSilentWaitsMax) return false;
    const bool nothing_comes =
        account_ != nullptr && (account_->allowed() == 0 ||
                                (!options_.draft_is_instant && entry.empty >= kEmptyAnswersMax));
    if (nothing_comes) return false;
    const TreeNode& root = entry.state->tree().root();
    const bool candidate_is_useless = entry.state->finish_rule().room_at(root.position + 1) <= 1;
    if (candidate_is_useless || entry.received.complete >= wanted_root(entry)) return false;
    if (options_.start != StartRule::Sequential) return true;
    // Candidates for this root are sent at once, unless the draft is still adding to them.
    const bool growing = entry.received.anything >= root.position;
    return growing || entry.state->tree().trunk_child(root.id) == nullptr;
}

std::optional<Micros> BatchScheduler::due() const {
    std::optional<Micros> soonest;
    const auto at = [&](Micros when) {
        if (!soonest || when < *soonest) soonest = when;
    };
    for (const auto& [request, entry] : entries_) {
        if (entry.state->over() || !entry.state->prefilled() || pages_.is_blocked(entry)) continue;
        if (entry.half_until) at(*entry.half_until);
        if (entry.in_flight.empty() && waits_for_draft(entry)) at(entry.wait_until);
    }
    return soonest;
}

}  // namespace paceline
