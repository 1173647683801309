#include "actors/segment/segment_roles.hpp"

#include <span>
#include <vector>

#include "ipc/base/check.hpp"

namespace paceline {

SegmentRoles::SegmentRoles(const SegmentPlan& plan, SegmentHost& host, Backend& backend) {
    if (!plan.previous) {
        const bool lockstep = plan.exit && plan.exit->lockstep && plan.next;
        dispatcher.emplace(
            host,
            DispatcherPlan{.options = plan.dispatch,
                           .draft = plan.draft,
                           .holds_runs_back = lockstep,
                           .account = {.controller = plan.dispatch.controller,
                                       .sequential = plan.dispatch.start == StartRule::Sequential,
                                       .free_candidates = plan.free_candidates,
                                       .random_seed = plan.dispatch.random_decisions},
                           .drafts = plan.speculative,
                           .exits = plan.priced_exits,
                           .next = plan.next,
                           .retained = plan.retained},
            backend.kv_slots());
        host.inbox.attach(*dispatcher);
    }
    if (plan.retained_slots > 0) retained.emplace(backend, plan.retained_slots);
    if (plan.exit) {
        early_verify.emplace(host, backend, *plan.exit,
                             ExitPosition{.segments = plan.count,
                                          .behind_last = !plan.next,
                                          .dispatcher = dispatcher ? &*dispatcher : nullptr,
                                          .first_segment = plan.first_segment});
        if (!dispatcher) host.inbox.attach(*early_verify);
        if (dispatcher)
            dispatcher->price_to([this](const msg::Price& price) { early_verify->take(price); });
    }
    if (!plan.next) {
        final_verify.emplace(
            host, backend, plan.verify,
            VerdictReceivers{.all = plan.verdict_to, .speculative = plan.speculative});
        host.inbox.attach(*final_verify);
    }
    if (plan.tap) {
        tap.emplace(host, backend, *plan.tap);
        host.inbox.attach(*tap);
    }
    if (plan.features) {
        PACE_CHECK(final_verify.has_value(), "features are the last segment's");
        features.emplace(host, backend, *plan.features);
        host.inbox.attach(*features);
    }
    if (plan.self_draft) {
        PACE_CHECK(dispatcher.has_value(), "a segment drafts that is not the first one");
        self_draft.emplace(
            SelfDraftHost{
                .slots = dispatcher->scheduler(),
                .gone = [&host](const RequestState& state) { return host.requests.gone(state); }},
            backend, *plan.self_draft);
        host.inbox.attach(*self_draft);
    }
}

void SegmentRoles::start(StageContext& context) {
    if (self_draft) self_draft->start(context);
}

void SegmentRoles::begin(const std::shared_ptr<RequestState>& state) {
    if (dispatcher) dispatcher->begin(state);
    if (self_draft) self_draft->begin(state);
}

void SegmentRoles::ended(RequestId request) {
    if (dispatcher) dispatcher->scheduler().end(request);
}

void SegmentRoles::all_ended() {
    if (dispatcher) dispatcher->scheduler().end_all();
}

void SegmentRoles::follow(RequestState& state,
                          const msg::Verdict& verdict,
                          const TreeUpdate& step) {
    if (tap) tap->follow(verdict);
    if (early_verify) early_verify->follow(state);
    if (dispatcher) dispatcher->follow(state, verdict, step);
    if (self_draft) self_draft->follow(state, step);
}

Status SegmentRoles::prepare(SegmentRun& run) {
    if (final_verify) {
        if (Status complete = final_verify->prepare(run); !complete) return complete;
    }
    if (early_verify) early_verify->prepare(run);
    if (self_draft) {
        std::vector<SelfDraftRows> batch;
        for (const RunPart& part : run.parts) {
            batch.push_back({.state = part.state,
                             .kind = part.part.kind,
                             .rows = std::span{run.job.rows}.subspan(part.first, part.part.rows)});
        }
        self_draft->prepare(batch);
    }
    if (tap) tap->prepare(run);
    if (features) features->prepare(run);
    return {};
}

bool SegmentRoles::busy() const {
    return (early_verify && early_verify->busy()) || (self_draft && self_draft->busy()) ||
           (dispatcher && dispatcher->holds_a_run());
}

std::uint32_t SegmentRoles::heads_of_run() const {
    return (final_verify ? final_verify->job().heads() : 0) +
           (early_verify ? early_verify->inside().heads() : 0);
}

}  // namespace paceline
