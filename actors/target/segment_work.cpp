// The second part of SegmentActor: the way of parts through the layers: queue, run, and what follows
// from a run. The first part (segment_actor.cpp) is its inbox.
#include <algorithm>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "actors/target/segment_actor.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

// ---- The queue

bool SegmentActor::busy() const {
    return running_ || (early_ && early_->busy()) || (self_ && self_->busy()) ||
           (dispatcher_ && dispatcher_->holds_a_run());
}

/// Whether a run could be passed on at its end.
bool SegmentActor::acquire_slot() {
    host_.outbox->flush();
    if (!host_.outbox->empty()) return false;
    if (!plan_.next) return true;
    if (out_ == nullptr) return false;  // the next segment is lost
    if (!out_slot_) out_slot_ = out_->acquire();
    return out_slot_.has_value();
}

SegmentQueue::Readiness SegmentActor::readiness_of(const WaitingPart& part) const {
    using Readiness = SegmentQueue::Readiness;
    const auto state = host_.requests.find(part.part.request, part.part.attempt);
    if (!state) {
        const Age age = host_.inbox.gate.age(part.part.request, part.part.attempt);
        return age == Age::Early ? Readiness::Waits : Readiness::Stale;
    }
    if (state->over()) return Readiness::Stale;
    if (part.part.kind == msg::BatchKind::Prefill) return Readiness::Ready;
    // A part that builds on a verdict waits for it: both are under way to this segment. This is also a check
    // of the sender: without the keys of all positions before the root its tokens would be wrong.
    const auto held = static_cast<Position>(state->slots().size());
    const Position root = static_cast<Position>(state->text().size()) - 1;
    const bool gap = held != root && !planted(PlantedBug::RootGapIgnored);
    if (part.part.base > held || gap) return Readiness::Waits;
    if (!part.joined) return Readiness::Joins;
    return state->wants(part.rows) ? Readiness::Ready : Readiness::Stale;
}

Result<std::vector<WaitingPart>> SegmentActor::next_parts() {
    if (dispatcher_) {
        std::vector<WaitingPart> parts = dispatcher_->next_parts();
        for (WaitingPart& part : parts) {
            const bool verifies = self_ && part.part.kind == msg::BatchKind::Verify;
            if (!verifies) continue;
            part.copied =
                self_->begun_rows(*host_.requests.find(part.part.request, part.part.attempt));
        }
        return parts;
    }
    return queue_.take(
        {.readiness_of = [this](const WaitingPart& part) { return readiness_of(part); },
         .join =
             [this](const WaitingPart& part) {
                 return host_.requests.find(part.part.request, part.part.attempt)
                     ->take_rows(part.rows, part.drawn_below);
             }},
        host_.context->now());
}

Status SegmentActor::advance() {
    if (dispatcher_) {
        const RunPtr released = dispatcher_->release();
        if (released && !released->parts.empty()) pass_on(*released);
    }
    while (!busy()) {
        if (submit_draft()) break;
        if (!acquire_slot()) break;
        Result<std::vector<WaitingPart>> parts = next_parts();
        if (!parts) return blame_previous(parts.error());
        if (parts.value().empty()) break;
        if (Status started = start(parts.value()); !started) return blame_previous(started.error());
    }
    wake_when_due();
    return {};
}

/// Queued parts come from the segment before; only their form was checked when they arrived.
/// That segment is lost at the end of the loop's round; its parts do not run until then. The first segment forms
/// its batches itself.
Status SegmentActor::blame_previous(const Error& error) {
    if (!plan_.previous) return error;
    const Status own = blame_sender(*host_.context, *plan_.previous, error);
    if (own.ok()) queue_.forget_all();
    return own;
}

/// Whether the segment drafts now: then no batch is formed until all candidates are there.
bool SegmentActor::submit_draft() {
    const std::optional<JobLabel> label = self_ ? self_->next_job() : std::nullopt;
    if (!label) return false;
    host_.context->submit(
        *label,
        [this] {
            return self_->run() == RunOutcome::Done ? JobOutcome::Done : JobOutcome::Cancelled;
        },
        [this](JobOutcome outcome) {
            self_->finish(outcome == JobOutcome::Done ? RunOutcome::Done : RunOutcome::Cancelled);
            report(advance());
        });
    return true;
}

/// Sets a timer for what is due even if no message comes.
void SegmentActor::wake_when_due() {
    const Micros now = host_.context->now();
    std::optional<Micros> due = queue_.due(now);
    const bool holds_a_run = dispatcher_ && dispatcher_->holds_a_run();
    // While a run is in the way the end of it comes first; a batch that is due already waits for
    // a channel.
    const bool ready = !busy() && host_.outbox->empty() && (!plan_.next || out_slot_);
    if (dispatcher_ && (holds_a_run || ready)) {
        const std::optional<Micros> batch = dispatcher_->scheduler().due();
        if (batch && (!due || *batch < *due)) due = batch;
    }
    if (!due || (wake_at_ && *wake_at_ <= *due && *wake_at_ > now)) return;
    // While a run is held back it is asked again a little later: another request's batch may be due.
    const Micros delay = std::max(holds_a_run ? Micros{500} : Micros{0}, *due - now);
    wake_at_ = now + delay;
    host_.context->schedule(delay, [this, at = *wake_at_] {
        if (wake_at_ == at) wake_at_.reset();
        report(advance());
    });
}

void SegmentActor::show_gauges() {
    host_.context->set(gauges::kRequests, host_.requests.running());
    host_.context->set(gauges::kQueueDepth, queue_.size());
    if (!dispatcher_) return;
    host_.context->set(gauges::kKvPages,
                       static_cast<std::uint64_t>(dispatcher_->scheduler().pages_in_use()));
}

// ---- One run

Status SegmentActor::start(std::span<const WaitingPart> parts) {
    PACE_CHECK(final_ || out_slot_, "a run starts without a slot to write to");
    const auto run = std::make_shared<SegmentRun>(
        backend_, final_ ? final_->memory() : hidden_rows(out_->place(*out_slot_)));
    if (Status collected = run->collect(host_.requests, parts); !collected) return collected;
    if (run->named.empty()) return {};
    if (final_) {
        if (Status complete = final_->prepare(*run); !complete) return complete;
    }
    if (early_) early_->prepare(*run);
    if (self_) self_->prepare(*run);
    if (tap_) tap_->prepare(*run);
    if (works_apart(*run)) run->work_in(backend_.rows_of(work_, run->named.size()));
    record(*run);
    run->watch(*host_.context, !final_);
    submit(run);
    return {};
}

/// Whether the layers of a device work in memory of their own: they write to the host, and rows come
/// from the device, or an exit reads them there.
bool SegmentActor::works_apart(const SegmentRun& run) const {
    if (backend_.memory_place() == MemoryPlace::Host || run.out.on_device()) return false;
    return run.reads_device() || (early_ && early_->reads_run());
}

void SegmentActor::submit(const RunPtr& run) {
    running_ = run;
    run->started = host_.context->now();
    if (early_) early_->run_starts(run->started);
    JobLabel label = run->label();
    label.heads = (final_ ? final_->heads() : 0) + (early_ ? early_->heads_inside() : 0);
    host_.context->submit(
        label,
        [this, run] {
            run->gather_inputs();
            const bool exit_reads = early_ && early_->reads_run();
            const RunOutcome outcome =
                final_ ? final_->run_layers(*run, exit_reads)
                       : backend_.run_layers(run->rows, run->hidden, &run->cancel);
            if (outcome == RunOutcome::Cancelled) return JobOutcome::Cancelled;
            run->scatter_outputs();
            if (final_) final_->verify();
            if (early_) early_->evaluate_inside(*run);
            return JobOutcome::Done;
        },
        [this, run](JobOutcome outcome) { finish(run, outcome); });
}

void SegmentActor::record(const SegmentRun& run) {
    StageContext& context = *host_.context;
    context.count(counters::kBatches);
    context.count(counters::kBatchRows, run.named.size());
    for (const RunPart& part : run.parts) {
        if (part.prefill()) context.count(counters::kPrefillRows, part.part.rows);
        std::uint64_t sublayers = 0;
        for (std::size_t i = part.first; i < part.first + part.part.rows; ++i)
            sublayers += static_cast<std::uint64_t>(run.rows[i].last - run.rows[i].first);
        context.count(part.prefill() ? counters::kPrefillSublayers : counters::kVerifySublayers,
                      sublayers);
    }
    if (dispatcher_) dispatcher_->record(run);
}

void SegmentActor::cancel_if_stale() {
    if (running_ && running_->stale(host_.requests)) running_->cancel.cancel();
}

void SegmentActor::finish(const RunPtr& run, JobOutcome outcome) {
    PACE_CHECK(running_ == run, "a job ends that is not running");
    running_.reset();
    if (self_) self_->ran(*run, host_.context->now() - run->started);
    run->release();
    run->drop_stale(host_.requests, outcome, final_.has_value());
    Status status;
    if (!run->parts.empty()) status = go_on(run);
    if (status.ok() && final_)
        status = begin_waiting();  // its own verdict may have ended a request
    if (status.ok()) status = advance();
    report(status);
}

/// The run has passed the layers, and not all of its rows are stale.
Status SegmentActor::go_on(const RunPtr& run) {
    if (early_) early_->run_ended(*run);
    if (final_) {
        if (Status announced = announce(*run); !announced) return announced;
    } else {
        if (dispatcher_) dispatcher_->hold_followed(*run);
        if (!dispatcher_ || !dispatcher_->hold_back(run)) pass_on(*run);
    }
    if (early_) submit_exit();
    return {};
}

Status SegmentActor::announce(const SegmentRun& run) {
    for (const VerifyPart& verified : final_->verified()) {
        const auto part = std::find_if(
            run.parts.begin(), run.parts.end(),
            [&](const RunPart& candidate) { return candidate.state.get() == &verified.state; });
        if (part == run.parts.end()) continue;  // stopped while it was verified
        if (self_) self_->verified(verified);
        const msg::Verdict verdict = final_->announce(verified, *part);
        if (Status applied = apply(*part->state, verdict); !applied) return applied;
        if (!early_ || part->state->over()) continue;
        early_->look_ahead(
            run, part->state,
            verified.hidden.subspan(verified.result.last_row * run.dim(), run.dim()));
    }
    return {};
}

void SegmentActor::pass_on(const SegmentRun& run) {
    const PoolRef ref = *std::exchange(out_slot_, std::nullopt);
    out_->publish(ref, run.out.size() * sizeof(float));
    msg::Batch batch{};
    batch.epoch = host_.context->epoch();
    batch.tensor = ref.index;
    batch.tensor_generation = ref.generation;
    batch.tensor_rows = static_cast<std::uint32_t>(run.out.size() / run.dim());
    for (const RunPart& part : run.parts) batch.parts.push_back(part.part);
    batch.rows = run.named;
    run.add_draws(batch);
    host_.outbox->send<SegmentActor>(*plan_.next, batch);
}

void SegmentActor::submit_exit() {
    const std::optional<JobLabel> label = early_->next_job();
    if (!label) return;
    host_.context->submit(
        *label,
        [this] {
            early_->evaluate();
            return JobOutcome::Done;
        },
        [this](JobOutcome) {
            early_->finish();
            report(advance());
        });
}

}  // namespace paceline
