#include "actors/segment/segment_runner.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "actors/segment/run_job.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

SegmentRunner::SegmentRunner(SegmentHost& host,
                             Backend& backend,
                             SegmentRoles& roles,
                             BatchIntake& intake,
                             BatchOutlet& outlet,
                             RunResults results)
    : host_{host},
      backend_{backend},
      roles_{roles},
      intake_{intake},
      outlet_{outlet},
      results_{std::move(results)} {}

/// The context, and with it the tensors that the run names, may be gone already.
SegmentRunner::~SegmentRunner() {
    forget_tensors();
}

void SegmentRunner::cancel_if_stale() {
    if (running_ && running_->stale(host_.requests)) cancel();
}

void SegmentRunner::cancel() {
    if (running_ && running_->may_be_cut()) running_->job.cancel.cancel();
}

void SegmentRunner::forget_tensors() {
    if (running_) running_->forget_tensors();
}

// ---- What comes next

Status SegmentRunner::advance() {
    if (roles_.dispatcher) {
        const RunPtr released = roles_.dispatcher->release();
        if (released && !released->parts.empty()) outlet_.forward(*released);
    }
    while (!busy()) {
        if (submit_draft()) break;
        if (!outlet_.acquire()) break;
        Result<std::vector<WaitingPart>> parts = next_parts();
        if (!parts) return intake_.blame_sender_for(parts.error());
        if (parts.value().empty()) break;
        if (Status started = start(parts.value()); !started)
            return intake_.blame_sender_for(started.error());
    }
    wake_when_due();
    return {};
}

/// Whether the segment drafts now: then no batch is formed until all candidates are there.
bool SegmentRunner::submit_draft() {
    if (!roles_.self_draft) return false;
    SelfDraft& draft = *roles_.self_draft;
    const std::optional<JobLabel> label = draft.next_job();
    if (!label) return false;
    host_.context->submit(
        *label,
        [&draft] {
            return draft.run() == RunOutcome::Done ? JobOutcome::Done : JobOutcome::Cancelled;
        },
        [this, &draft](JobOutcome outcome) {
            draft.finish(outcome == JobOutcome::Done ? RunOutcome::Done : RunOutcome::Cancelled);
            host_.report(advance());
        });
    return true;
}

Result<std::vector<WaitingPart>> SegmentRunner::next_parts() {
    if (!roles_.dispatcher) return intake_.take();
    std::vector<WaitingPart> parts = roles_.dispatcher->next_parts();
    for (WaitingPart& part : parts) {
        if (!roles_.self_draft || part.part.kind != msg::BatchKind::Verify) continue;
        part.copied = roles_.self_draft->begun_rows(
            *host_.requests.find(part.part.request, part.part.attempt));
    }
    return parts;
}

/// Sets a timer for what is due even if no message comes.
void SegmentRunner::wake_when_due() {
    const Micros now = host_.context->now();
    std::optional<Micros> due = intake_.due();
    const bool holds_a_run = roles_.dispatcher && roles_.dispatcher->holds_a_run();
    // While a run is in the way the end of it comes first; a batch that is due already waits for
    // a channel.
    if (roles_.dispatcher && (holds_a_run || (!busy() && outlet_.ready()))) {
        const std::optional<Micros> batch = roles_.dispatcher->scheduler().due();
        if (batch && (!due || *batch < *due)) due = batch;
    }
    if (!due || (wake_at_ && *wake_at_ <= *due && *wake_at_ > now)) return;
    // While a run is held back it is asked again a little later: another request's batch may be
    // due.
    const Micros delay = std::max(holds_a_run ? Micros{500} : Micros{0}, *due - now);
    wake_at_ = now + delay;
    host_.context->schedule(delay, [this, at = *wake_at_] {
        if (wake_at_ == at) wake_at_.reset();
        host_.report(advance());
    });
}

// ---- One run

Status SegmentRunner::start(std::span<const WaitingPart> parts) {
    const auto run = std::make_shared<SegmentRun>(
        backend_, roles_.final_verify ? roles_.final_verify->memory() : outlet_.memory());
    if (roles_.retained) run->job.retained = &*roles_.retained;
    if (Status collected = run->collect(host_.requests, parts); !collected) return collected;
    if (run->rows.empty()) return {};
    if (Status prepared = roles_.prepare(*run); !prepared) return prepared;
    if (uses_scratch_rows(run->job)) run->job.work_in(backend_.rows_of(work_, run->rows.size()));
    record(*run);
    run->watch(*host_.context, !roles_.final_verify);
    submit(run);
    return {};
}

/// Whether the layers of a device work in memory of their own: they write to the host, and rows
/// come from the device, or an exit or an adapter reads them there.
bool SegmentRunner::uses_scratch_rows(const LayerJob& job) const {
    if (backend_.memory_place() == MemoryPlace::Host || job.out.on_device()) return false;
    return job.reads_device() || roles_.exit_reads_run() || roles_.exit_adapter() != nullptr;
}

void SegmentRunner::record(const SegmentRun& run) {
    StageContext& context = *host_.context;
    context.count(counters::kBatches);
    context.count(counters::kBatchRows, run.rows.size());
    for (const RunPart& part : run.parts) {
        if (part.prefill()) context.count(counters::kPrefillRows, part.part.rows);
        std::uint64_t sublayers = 0;
        for (std::size_t i = part.first; i < part.first + part.part.rows; ++i) {
            const Row& row = run.job.rows[i];
            sublayers += static_cast<std::uint64_t>(row.last - row.first);
        }
        context.count(part.prefill() ? counters::kPrefillSublayers : counters::kVerifySublayers,
                      sublayers);
    }
    if (roles_.dispatcher) roles_.dispatcher->record(run);
}

void SegmentRunner::submit(const RunPtr& run) {
    running_ = run;
    run->started = host_.context->now();
    if (roles_.early_verify) roles_.early_verify->run_starts(run->started);
    JobLabel label = run->label();
    label.heads = roles_.heads_of_run();
    const RunJob job{.layers = run->job,
                     .verify = roles_.final_verify ? &roles_.final_verify->job() : nullptr,
                     .inside = roles_.early_verify && roles_.early_verify->defers()
                                   ? &roles_.early_verify->inside()
                                   : nullptr,
                     .states_read = roles_.reads_run(),
                     .adapter = roles_.exit_adapter()};
    host_.context->submit(
        label, [run, job] { return job.run(); },
        [this, run](JobOutcome outcome) { finish(run, outcome); });
}

void SegmentRunner::finish(const RunPtr& run, JobOutcome outcome) {
    PACE_CHECK(running_ == run, "a job ends that is not running");
    running_.reset();
    if (roles_.self_draft)
        roles_.self_draft->ran(run->verifies(), host_.context->now() - run->started);
    run->charge(host_.context->now() - run->started);
    run->release();
    run->drop_stale(host_.requests, outcome, roles_.final_verify.has_value());
    Status status;
    if (!run->parts.empty()) status = continue_run(run);
    if (status.ok() && roles_.final_verify) status = results_.applied();
    if (status.ok()) status = advance();
    host_.report(status);
}

/// The run has passed the layers, and not all of its rows are stale.
Status SegmentRunner::continue_run(const RunPtr& run) {
    if (roles_.early_verify) roles_.early_verify->run_ended(*run);
    if (roles_.final_verify) {
        if (Status announced = announce(*run); !announced) return announced;
    } else {
        if (roles_.dispatcher) roles_.dispatcher->hold_followed(*run);
        outlet_.end_here(*run);
        const bool goes_on = !run->parts.empty();
        if (goes_on && (!roles_.dispatcher || !roles_.dispatcher->hold_back(run)))
            outlet_.forward(*run);
    }
    if (roles_.early_verify) submit_exit();
    return {};
}

Status SegmentRunner::announce(const SegmentRun& run) {
    roles_.final_verify->send_scores(run);
    if (roles_.features) roles_.features->send_prompts(run);
    for (const VerifyPart& verified : roles_.final_verify->job().parts) {
        const auto part = std::find_if(
            run.parts.begin(), run.parts.end(),
            [&](const RunPart& candidate) { return candidate.state.get() == &verified.state; });
        if (part == run.parts.end()) continue;  // stopped while it was verified
        if (roles_.self_draft)
            roles_.self_draft->verified(verified.state, verified.rows, verified.result);
        if (roles_.features) roles_.features->send_accepted(verified, *part);
        const msg::Verdict verdict = roles_.final_verify->announce(verified, *part, run.cost);
        if (Status applied = results_.apply(*part->state, verdict); !applied) return applied;
        if (!roles_.early_verify || part->state->over()) continue;
        roles_.early_verify->look_ahead(
            run, part->state,
            verified.hidden.subspan(verified.result.last_row * run.dim(), run.dim()));
    }
    return {};
}

void SegmentRunner::submit_exit() {
    EarlyVerify& exit = *roles_.early_verify;
    const std::optional<JobLabel> label = exit.next_job();
    if (!label) return;
    host_.context->submit(
        *label,
        [&exit] {
            exit.evaluate();
            return JobOutcome::Done;
        },
        [this, &exit](JobOutcome) {
            exit.finish();
            host_.report(advance());
        });
}

}  // namespace paceline
