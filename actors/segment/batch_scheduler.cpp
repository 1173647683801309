#include "actors/segment/batch_scheduler.hpp"

#include <algorithm>
#include <utility>

#include "actors/segment/scheduling/batch_writer.hpp"
#include "actors/segment/scheduling/candidate_merge.hpp"
#include "actors/segment/scheduling/unsent_rows.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

BatchScheduler::BatchScheduler(DispatchOptions options,
                               std::int32_t kv_slots,
                               SpeculationAccount* account,
                               std::vector<RetainedBy> retained)
    : options_{options},
      account_{account},
      pages_{kv_slots, std::move(retained)},
      wait_rule_{.start = options.start,
                 .wait = options.proposal_wait,
                 .draft_is_instant = options.draft_is_instant,
                 .account = account},
      budget_{options_, account} {
    PACE_CHECK(validate(options).ok(), "dispatch options that were not validated");
}

// ---- Requests

void BatchScheduler::begin(const std::shared_ptr<RequestState>& state, Micros now) {
    drop(state->request());
    const BeginPayload& spec = state->spec();
    if (!planted(PlantedBug::LostKeysTrusted))
        pages_.follow_losses(spec.cache_generation, spec.keys_lost);
    entries_.try_emplace(
        state->request(), state,
        pages_.slots(spec.context, planted(PlantedBug::SaltIgnored) ? "" : spec.cache_salt),
        wait_rule_, now);
    if (account_ != nullptr) account_->changed(state->request());
}

SchedulerEntry* BatchScheduler::find(RequestId request) {
    const auto found = entries_.find(request);
    return found == entries_.end() ? nullptr : &found->second;
}

void BatchScheduler::drop(RequestId request) {
    const auto found = entries_.find(request);
    if (found == entries_.end()) return;
    found->second.ahead.free_all(found->second.slots);
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

void BatchScheduler::end_all() {
    while (!entries_.empty()) end(entries_.begin()->first);
}

void BatchScheduler::draft_changed(bool present) {
    wait_rule_.draft_present = present;
    for (auto& [request, entry] : entries_) entry.wait.draft_changed();
}

// ---- Proposals

void BatchScheduler::propose(const msg::Proposal& proposal, ProposalSender sender, Micros now) {
    SchedulerEntry* entry = find(proposal.route.request);
    if (entry == nullptr || !entry->state->spec().speculation.on) return;
    if (proposal.root_position > entry->state->tree().root().position) {
        entry->future.keep(proposal, sender);
    } else {
        merge(*entry, proposal, sender, now);
    }
}

void BatchScheduler::merge(SchedulerEntry& entry,
                           const msg::Proposal& proposal,
                           ProposalSender sender,
                           Micros now) {
    const MergedProposal merged = merge_proposal(*entry.state, proposal, sender);
    if (merged.on_text && sender == ProposalSender::Draft) entry.wait.receive(proposal, now);
    ++(merged.used ? proposals_.used : proposals_.outdated);
    // Made for an older root, but it contains this one.
    if (entry.open && !entry.open->prepared && merged.root) {
        entry.open->prepared = true;
        entry.open->origin = *merged.root;
    }
}

void BatchScheduler::take_drawn(const msg::Draw& draw) {
    SchedulerEntry* entry = find(draw.route.request);
    if (entry == nullptr || entry->state->over()) return;
    if (draw.root_position <= entry->state->tree().root().position) {
        bind_draw(*entry->state, draw);
    } else {
        entry->future.keep(draw);
    }
}

// ---- Rows that a draft computes ahead

std::optional<KvSlot> BatchScheduler::allocate_ahead(RequestId request, NodeId node) {
    SchedulerEntry* entry = find(request);
    if (entry == nullptr) return std::nullopt;
    const TreeNode* named = entry->state->tree().find(node);
    PACE_CHECK(named != nullptr, "a node is computed ahead that is not in the tree");
    return entry->ahead.allocate(*named, entry->slots,
                                 RequestPages::candidate_rule(entries_.size()));
}

void BatchScheduler::computed_ahead(RequestId request,
                                    NodeId node,
                                    std::uint32_t start,
                                    std::uint32_t tensor_row) {
    if (SchedulerEntry* entry = find(request)) entry->ahead.computed(node, start, tensor_row);
}

// ---- Verdicts

Outcome BatchScheduler::follow(RequestId request, const TreeUpdate& step, Micros now) {
    SchedulerEntry* found = find(request);
    // A late verdict on a request that was stopped.
    if (found == nullptr) return {};
    SchedulerEntry& entry = *found;
    entry.ahead.free_all(entry.slots);
    for (const TreeNode& node : step.committed) entry.slots.commit(node.slot);
    for (const TreeNode& node : step.dropped) entry.slots.free(node.position, node.slot);
    entry.slots.trim();
    entry.page_use.proven = true;
    pages_.publish(entry);
    const TokenTree& tree = entry.state->tree();
    std::erase_if(entry.in_flight, [&](const std::vector<NodeId>& nodes) {
        return std::none_of(nodes.begin(), nodes.end(),
                            [&](NodeId node) { return tree.find(node) != nullptr; });
    });
    entry.wait.decided(now);
    entry.decided = now;
    entry.open.reset();
    entry.page_use.blocked_at.reset();
    if (account_ != nullptr) account_->judged(step.judged, entry.draws());
    if (entry.state->over()) {
        end(request);
        return {};
    }
    Outcome outcome{.prepared = step.prepared, .origin = tree.root().origin};
    outcome.open = options_.start == StartRule::Lockstep && !step.prepared && entry.wait.waits();
    if (outcome.open) entry.open = Outcome{};
    const Position root = tree.root().position;
    for (const ProposalSender sender : kProposalSenders) {
        if (const auto due = entry.future.take_proposal(sender, root))
            merge(entry, *due, sender, now);
    }
    for (const msg::Draw& draw : entry.future.take_draws(root)) bind_draw(*entry.state, draw);
    return outcome;
}

std::vector<Outcome> BatchScheduler::take_resolved() {
    return std::exchange(resolved_, {});
}

bool BatchScheduler::halfway(RequestId request, Micros now) {
    SchedulerEntry* entry = find(request);
    return entry == nullptr || entry->wait.halfway(now);
}

std::optional<Micros> BatchScheduler::due() const {
    std::optional<Micros> soonest;
    for (const auto& [request, entry] : entries_) {
        if (entry.state->over() || !entry.state->prefilled() || pages_.is_blocked(entry)) continue;
        const std::optional<Micros> own = entry.wait.due(entry.in_flight.empty());
        if (own && (!soonest || *own < *soonest)) soonest = own;
    }
    return soonest;
}

// ---- The next batch

RowOrder BatchScheduler::unsent(const SchedulerEntry& entry) const {
    const TreeNode& root = entry.state->tree().root();
    if (budget_.plain_turn()) {
        if (root.sent() || !entry.in_flight.empty() || !worth_a_row(*entry.state, root)) return {};
        return {.nodes = {root.id}};
    }
    if (entry.wait.in_first_round() && !root.sent()) return {.nodes = {root.id}};
    return unsent_rows(*entry.state, options_);
}

bool BatchScheduler::may_start(const SchedulerEntry& entry, Micros now) const {
    const bool rounds = options_.start == StartRule::Lockstep;
    if (entry.in_flight.size() >= (rounds ? 1 : options_.batches_in_flight_max)) return false;
    if (!entry.in_flight.empty()) return true;  // if there are rows: unsent() looks
    return entry.wait.may_start(now);
}

/// All requests with rows to send: first those that found no room most often, then verify before
/// prefill, then those served longest ago.
std::vector<SchedulableRequest> BatchScheduler::schedulable(Micros now) {
    std::vector<SchedulableRequest> found;
    for (auto& [request, entry] : entries_) {
        if (entry.state->over() || pages_.is_blocked(entry) ||
            pages_.waits_for_prefix(entry, entries_))
            continue;
        if (!entry.page_use.looked_up) pages_.look_up(entry);
        SchedulableRequest candidate{.entry = &entry};
        if (!entry.state->prefilled()) {
            candidate.wanted = static_cast<std::uint32_t>(
                std::min<std::size_t>(entry.prefill_left(), options_.prefill_rows));
        } else if (may_start(entry, now)) {
            candidate.order = unsent(entry);
            if (budget_.chooses()) budget_.weigh(candidate);
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

std::optional<msg::Batch> BatchScheduler::next_batch(Micros now) {
    for (auto& [request, entry] : entries_) entry.wait.expire(now);
    // If no part was formed, all its requests were blocked, and the next round tries others.
    while (true) {
        std::vector<SchedulableRequest> all = schedulable(now);
        if (all.empty()) return std::nullopt;
        for (std::size_t i = options_.requests_max; i < all.size(); ++i) ++all[i].entry->passed;
        const std::size_t most = std::min<std::size_t>(all.size(), options_.requests_max);
        msg::Batch batch = form(std::span{all}.first(most), now);
        if (!batch.parts.empty()) return batch;
    }
}

msg::Batch BatchScheduler::form(std::span<SchedulableRequest> chosen, Micros now) {
    const auto count = [this](auto holds) {
        return static_cast<std::size_t>(std::count_if(
            entries_.begin(), entries_.end(),
            [&](const auto& entry) { return !entry.second.state->over() && holds(entry.second); }));
    };
    const bool alone = count([](const SchedulerEntry& e) { return !e.in_flight.empty(); }) == 0;
    budget_.share(chosen, now);
    BatchWriter writer{pages_, {.number = ++batches_, .running = entries_.size(), .now = now}};
    for (const bool prefills : {false, true}) {
        for (const SchedulableRequest& each : chosen) {
            if (each.prefills() == prefills) writer.add(each);
        }
    }
    WrittenBatch written = writer.take();
    resolved_.insert(resolved_.end(), written.resolved.begin(), written.resolved.end());
    proposals_.waits_expired += written.waits_expired;
    budget_.charge(written.batch,
                   count([](const SchedulerEntry& e) { return e.state->prefilled(); }), alone, now);
    return std::move(written.batch);
}

}  // namespace paceline
