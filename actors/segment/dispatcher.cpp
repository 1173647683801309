#include "actors/segment/dispatcher.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

DispatchOptions with_draft(DispatchOptions options, const std::optional<StageId>& draft) {
    if (!draft) options.start = StartRule::AtOnce;
    return options;
}

}  // namespace

Dispatcher::Dispatcher(SegmentHost& host, const DispatcherPlan& plan, std::int32_t kv_slots)
    : host_{host},
      draft_{plan.draft},
      holds_runs_back_{plan.holds_runs_back},
      drafts_{plan.drafts},
      exits_{plan.exits},
      next_{plan.next},
      account_{plan.account},
      scheduler_{with_draft(plan.options, plan.draft), kv_slots,
                 plan.account.controller == Controller::Off ? nullptr : &account_, plan.retained} {}

// ---- Messages

Status Dispatcher::handle(StageId from, const msg::Proposal& proposal) {
    if (Status checked = check_message(proposal, host_.limits); !checked) return checked;
    if (host_.inbox.admit_hint(from, proposal) != Age::Current) return {};
    const auto source = from == draft_ ? BatchScheduler::ProposalSource::Draft
                                       : BatchScheduler::ProposalSource::Other;
    scheduler_.propose(proposal, source, host_.context->now());
    return {};
}

/// An early Draw is dropped: keeping the newest of several would let the values of some decide
/// which of them count as drawn.
Status Dispatcher::handle(StageId from, const msg::Draw& draw) {
    if (Status checked = check_message(draw, host_.limits); !checked) return checked;
    if (host_.inbox.peek<msg::Draw>(from, draw.route) == Age::Current) scheduler_.take_drawn(draw);
    return {};
}

void Dispatcher::propose(const msg::Proposal& proposal) {
    scheduler_.propose(proposal, BatchScheduler::ProposalSource::Other, host_.context->now());
}

void Dispatcher::peer_changed(StageId peer, PeerChange change) {
    if (peer == draft_) scheduler_.draft_changed(change == PeerChange::Joined);
    if (change != PeerChange::Joined) return;
    account_.forget_told(SpeculationAccount::Group::Drafts);
    account_.forget_told(SpeculationAccount::Group::Exits);
}

void Dispatcher::follow(const RequestState& state,
                        const msg::Verdict& verdict,
                        const TreeUpdate& step) {
    const Micros now = host_.context->now();
    account_.verified(state.request(), verdict.batch, static_cast<int>(verdict.count), verdict.cost,
                      now);
    count(state, step, scheduler_.follow(state.request(), step, now));
    send_prices(verdict.route);
}

/// Only what has changed. A price that finds no room is sent with the next change.
void Dispatcher::send_prices(const msg::Route& about) {
    const GuardTurns& turns = account_.turns();
    host_.context->set(gauges::kPlainTokenMicros,
                       static_cast<std::uint64_t>(turns.plain_token().count()));
    host_.context->set(gauges::kTurnsPlainMicros,
                       static_cast<std::uint64_t>(turns.plain_took_us()));
    host_.context->set(gauges::kTurnsMicros, static_cast<std::uint64_t>(turns.took_us()));
    const auto send = [&](SpeculationAccount::Group group, const std::vector<StageId>& to,
                          const std::function<void(const msg::Price&)>& own) {
        if (to.empty() && !own) return;
        std::optional<msg::Price> price = account_.take_price(group);
        if (!price) return;
        price->route = {
            .request = about.request, .attempt = about.attempt, .epoch = host_.context->epoch()};
        price->generation = ++prices_;
        if (own) own(*price);
        for (const StageId stage : to) {
            if (emit<Dispatcher>(*host_.context, stage, *price) == Push::Full)
                account_.forget_told(group);
        }
    };
    send(SpeculationAccount::Group::Drafts, drafts_, {});
    send(SpeculationAccount::Group::Exits, exits_, own_exit_);
}

void Dispatcher::begin(const std::shared_ptr<RequestState>& state) {
    scheduler_.begin(state, host_.context->now());
}

/// Counts which of the sent candidates a verdict accepted.
void Dispatcher::count(const RequestState& state,
                       const TreeUpdate& step,
                       const Outcome& outcome) const {
    host_.context->count(counters::kRowsWasted, step.dropped.size());
    const auto by_exit = [](const TreeNode& node) { return node.origin == msg::Origin::Exit; };
    const auto right = std::count_if(step.committed.begin(), step.committed.end(), by_exit);
    // A candidate below a rejected one was not verified: its row was wasted, but it was not wrong.
    const auto wrong =
        std::count_if(step.dropped.begin(), step.dropped.end(), [&](const TreeNode& node) {
            return by_exit(node) &&
                   std::any_of(step.committed.begin(), step.committed.end(),
                               [&](const TreeNode& kept) { return kept.id == node.parent; });
        });
    host_.context->count(counters::kEarlyProposed, static_cast<std::uint64_t>(right + wrong));
    host_.context->count(counters::kEarlyRight, static_cast<std::uint64_t>(right));
    if (!state.over() && !outcome.open) count(outcome);
}

void Dispatcher::count(const Outcome& outcome) const {
    host_.context->count(outcome.prepared ? counters::outcome_of(outcome.origin)
                                          : counters::kOutcomeNone);
}

// ---- Batches

/// On the channel of the batches, so that every segment has it before the first one.
void Dispatcher::send_prefix(const CachedPrefix& prefix) {
    if (prefix.behind == 0)
        host_.context->count(counters::kCachedRows, prefix.pages.size() * kKvPageSlots);
    if (!next_) return;
    for (std::size_t first = 0; first < prefix.pages.size(); first += msg::kPrefixPagesMax) {
        const auto pages = std::span{prefix.pages}.subspan(first);
        const auto count = std::min<std::size_t>(pages.size(), msg::kPrefixPagesMax);
        msg::Prefix message{};
        message.route = {
            .request = prefix.request, .attempt = prefix.attempt, .epoch = host_.context->epoch()};
        message.first_block = static_cast<std::uint32_t>(prefix.first_block + first);
        message.behind = prefix.behind;
        message.count = static_cast<std::uint32_t>(count);
        message.matched = prefix.matched;
        std::copy_n(pages.begin(), count, message.pages.begin());
        host_.outbox->send<Dispatcher>(*next_, message);
    }
}

std::optional<msg::Batch> Dispatcher::form_batch() {
    std::optional<msg::Batch> batch = scheduler_.next_batch(host_.context->now());
    for (const Outcome& outcome : scheduler_.take_resolved()) count(outcome);
    for (const CachedPrefix& prefix : scheduler_.pages().take_prefixes()) send_prefix(prefix);
    host_.context->count(counters::kPrefixesBroken, scheduler_.pages().take_prefixes_broken());
    if (const auto shortage = scheduler_.pages().take_shortage()) {
        host_.context->post(kConductor, control::PagesWanted{shortage->request, shortage->attempt,
                                                             shortage->running});
    }
    if (batch) {
        const msg::BatchPart& part = batch->parts.front();
        send_prices({.request = part.request, .attempt = part.attempt, .epoch = {}});
    }
    return batch;
}

std::vector<WaitingPart> Dispatcher::next_parts() {
    std::vector<WaitingPart> parts;
    while (parts.empty()) {
        std::optional<msg::Batch> batch = std::exchange(formed_, std::nullopt);
        if (!batch) batch = form_batch();
        if (!batch) break;
        std::uint32_t at = 0;
        for (const msg::BatchPart& part : batch->parts) {
            const auto rows = std::span{batch->rows}.subspan(at, part.rows);
            at += part.rows;
            const auto state = host_.requests.find(part.request, part.attempt);
            if (!state || state->over()) continue;  // it has ended since the batch was formed
            parts.push_back({.part = part, .rows = {rows.begin(), rows.end()}, .joined = true});
        }
    }
    return parts;
}

void Dispatcher::record(const SegmentRun& run) const {
    for (const RunPart& part : run.parts) {
        if (!part.prefill() && part.part.rows == 1) host_.context->count(counters::kRootAlone);
        host_.context->trace({.kind = TraceKind::Batch,
                              .request = part.part.request,
                              .attempt = part.part.attempt,
                              .id = part.part.batch.value,
                              .position = part.part.base,
                              .count = part.part.rows});
    }
}

/// A deferred row that no later row builds on would wait for its limit in vain.
void Dispatcher::hold_followed(SegmentRun& run) {
    const bool holds = std::any_of(run.parts.begin(), run.parts.end(),
                                   [](const RunPart& part) { return part.part.hold != 0; });
    if (!holds) return;
    if (!formed_) formed_ = form_batch();
    for (RunPart& part : run.parts) {
        if (!next_batch_follows(run, part)) part.part.hold = 0;
    }
}

bool Dispatcher::next_batch_follows(const SegmentRun& run, const RunPart& part) const {
    if (!formed_) return false;
    const auto own = run.rows_of(part);
    const auto builds_on = [&](const msg::BatchRow& row) {
        return std::any_of(own.begin(), own.end(), [&](const msg::BatchRow& above) {
            return row.parent == above.node.value;
        });
    };
    std::uint32_t at = 0;
    for (const msg::BatchPart& next : formed_->parts) {
        const auto rows = std::span{formed_->rows}.subspan(at, next.rows);
        at += next.rows;
        if (next.request == part.part.request) {
            return std::any_of(rows.begin(), rows.end(), builds_on);
        }
    }
    return false;
}

bool Dispatcher::hold_back(const std::shared_ptr<SegmentRun>& run) {
    if (holds_runs_back_) held_back_ = run;
    return holds_runs_back_;
}

std::shared_ptr<SegmentRun> Dispatcher::release() {
    if (!held_back_) return nullptr;
    std::vector<bool> kept(held_back_->rows.size(), false);
    for (const RunPart& part : held_back_->parts) {
        if (host_.requests.gone(*part.state)) continue;
        const bool waits =
            !part.prefill() && !scheduler_.halfway(part.part.request, host_.context->now());
        if (waits) return nullptr;
        std::fill_n(kept.begin() + static_cast<std::ptrdiff_t>(part.first), part.part.rows, true);
    }
    std::shared_ptr<SegmentRun> run = std::exchange(held_back_, nullptr);
    run->keep(kept, false);
    return run;
}

void Dispatcher::drop_work() {
    formed_.reset();
    held_back_.reset();
}

}  // namespace paceline
