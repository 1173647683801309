#include "actors/segment/early_verify.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"

namespace paceline {
namespace {

// Of a batch: the cost of an evaluation inside a run until the dispatcher has measured it.
constexpr double kInsideShare = 0.1;
constexpr double kBatchMemory = 16.0;  // batches
constexpr Micros kAtOnce{50};

}  // namespace

std::uint32_t ExitInside::heads() const {
    std::size_t rows = 0;
    for (const ExitPart& part : parts) rows += part.rows.size();
    return static_cast<std::uint32_t>(rows);
}

EarlyVerify::EarlyVerify(SegmentHost& host,
                         Backend& backend,
                         ExitOptions options,
                         ExitPosition position)
    : host_{host},
      backend_{backend},
      position_{position},
      evaluator_{backend, std::move(options)},
      backlog_{backend} {}

bool EarlyVerify::defers() const {
    return evaluator_.options().defers && !position_.behind_last;
}

Status EarlyVerify::handle(StageId from, const msg::Price& price) {
    if (from != position_.first_segment) {
        return Error{Errc::Protocol, fmt::format("a price from stage {}, which is not the first "
                                                 "segment",
                                                 from.value)};
    }
    if (Status checked = check_message(price); !checked) return checked;
    if (host_.inbox.admit_hint(from, price) == Age::Current) evaluator_.take(price);
    return {};
}

// ---- A run

void EarlyVerify::prepare(const SegmentRun& run) {
    inside_.parts.clear();
    wanted_ = run.verifies() && evaluator_.wanted();
    if (!wanted_ || !defers()) return;
    for (const RunPart& part : run.parts) {
        if (!part.prefill()) inside_.parts.push_back(plan(run, part));
    }
}

/// The rows of a part to evaluate, and the shared word that tells the job which are decided.
ExitPart EarlyVerify::plan(const SegmentRun& run, const RunPart& part) const {
    ExitPart asked = evaluator_.plan(part.state, run.rows_of(part));
    const RequestState& state = *part.state;
    asked.watermark = {.request = state.request(),
                       .attempt = state.attempt(),
                       .watermark = host_.context->watermark_cell(state.request()),
                       .word = host_.context->cancel_word(state.request())};
    return asked;
}

/// A run that follows an evaluation at once may have waited for it.
void EarlyVerify::run_starts(Micros now) {
    const std::optional<Priced> last = std::exchange(priced_, std::nullopt);
    if (!last) return;
    evaluator_.spent(static_cast<double>(last->took.count()), now - last->ended <= kAtOnce);
}

void EarlyVerify::run_ended(SegmentRun& run) {
    measure(run);
    if (position_.behind_last) return;
    propose_inside(run);
    if (!evaluator_.options().defers) collect(run);
}

/// The time of a batch, estimated from the runs of this segment without prefill.
void EarlyVerify::measure(const SegmentRun& run) {
    const bool prefills = std::any_of(run.parts.begin(), run.parts.end(),
                                      [](const RunPart& part) { return part.prefill(); });
    if (prefills) return;
    const double took = static_cast<double>((host_.context->now() - run.started).count());
    const double batch = took * static_cast<double>(position_.segments);
    batch_us_ += batch_us_ > 0.0 ? (batch - batch_us_) / kBatchMemory : batch;
}

void EarlyVerify::propose_inside(SegmentRun& run) {
    if (inside_.parts.empty()) return;
    for (RunPart& part : run.parts) {
        const auto found =
            std::find_if(inside_.parts.begin(), inside_.parts.end(),
                         [&](const ExitPart& exit) { return exit.state == part.state; });
        if (part.prefill() || found == inside_.parts.end()) continue;
        host_.context->count(counters::kExitRows, found->rows.size());
        part.part.hold = publish(*found) ? 1 : 0;
    }
    // All exits of the target together make a batch so much longer.
    const double extra = evaluator_.extra_us() / std::max(position_.segments - 1, 1);
    evaluator_.spent(extra > 0.0 ? extra : kInsideShare * batch_us_, true);
}

/// Copies hidden states out of the run's memory, which is the next segment's from now on.
void EarlyVerify::collect(const SegmentRun& run) {
    if (evaluator_.has_adapter() && !wanted_ && backlog_.defer(run)) return;
    job_.label = run.label();
    job_.label.name = "exit";
    std::vector<RowSource> kept;
    if (evaluator_.has_adapter()) kept = collect_for_adapter(run);
    const auto own = static_cast<std::ptrdiff_t>(job_.late.rows.size());  // behind the late ones
    for (const RunPart& part : run.parts) {
        if (part.prefill() || !wanted_) continue;
        ExitPart asked = plan(run, part);
        for (ExitRow& row : asked.rows) {
            const auto found =
                std::find_if(kept.begin() + own, kept.end(),
                             [&](const RowSource& source) { return source.row == row.row; });
            const auto place = static_cast<std::size_t>(found - kept.begin());
            if (found == kept.end()) kept.push_back({run.job.hidden, row.row});
            row.row = place;
        }
        if (!asked.rows.empty()) job_.exits.push_back(std::move(asked));
    }
    job_.hidden = backend_.rows_of(states_, kept.size());
    backend_.gather(kept, job_.hidden);
}

/// An adapter gets every row, or it would miss keys of the text: those of runs that were not
/// evaluated first.
std::vector<RowSource> EarlyVerify::collect_for_adapter(const SegmentRun& run) {
    job_.late = backlog_.take(run);
    std::vector<RowSource> kept = std::exchange(job_.late.hidden, {});
    job_.rows = job_.late.rows;
    std::vector<Row> rows;
    run.build_rows(rows, job_.path_slots);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (run.passes_through(run.rows[i])) continue;  // its adapter's keys are kept
        kept.push_back({run.job.hidden, run.rows[i].tensor_row});
        job_.rows.push_back(rows[i]);
    }
    for (const RunPart& part : run.parts) job_.states.push_back(part.state);
    return kept;
}

void EarlyVerify::look_ahead(const SegmentRun& run,
                             const std::shared_ptr<RequestState>& state,
                             ConstHiddenRows hidden) {
    if (!wanted_ || evaluator_.options().ahead.empty() || !state->spec().speculation.on) return;
    if (job_.ahead.empty()) {
        job_.label = {.name = "exit",
                      .request = state->request(),
                      .id = run.parts.front().part.batch.value,
                      .context = static_cast<std::int32_t>(state->text().size())};
    }
    job_.ahead.push_back(
        {.state = state, .committed = state->text(), .hidden = hidden, .levels = {}});
}

// ---- The exit's own job

/// It runs after the run was passed on, so that the next segment does not wait for it. Where
/// others want this core it starts late: rows that are decided by then are left out.
std::optional<JobLabel> EarlyVerify::next_job() {
    for (ExitPart& part : job_.exits) ExitEvaluator::drop_decided(part);
    std::size_t heads = job_.ahead.size();
    for (const ExitPart& part : job_.exits) heads += part.rows.size();
    if (heads == 0 && job_.rows.empty()) {
        job_ = {};
        return std::nullopt;
    }
    busy_ = true;
    job_.started = host_.context->now();
    job_.label.heads = static_cast<std::uint32_t>(heads);
    job_.label.rows = static_cast<std::uint32_t>(std::max(heads, job_.rows.size()));
    job_.label.layers = 0;
    return job_.label;
}

void EarlyVerify::evaluate() {
    evaluator_.evaluate(job_.exits, job_.hidden, job_.rows);
    evaluator_.evaluate(job_.ahead);
}

void EarlyVerify::finish() {
    PACE_CHECK(busy_, "an exit's job ends that is not running");
    busy_ = false;
    const ExitJob job = std::exchange(job_, {});
    std::size_t rows = job.ahead.size();
    for (const ExitPart& part : job.exits) rows += part.rows.size();
    const Micros now = host_.context->now();
    if (rows > 0) priced_ = Priced{.took = now - job.started, .ended = now};
    host_.context->count(counters::kExitRows, rows);
    for (const ExitPart& part : job.exits) (void)publish(part);
    for (const AheadPart& part : job.ahead) {
        if (host_.requests.gone(*part.state)) continue;
        evaluator_.remember(part);
        if (const auto proposal = evaluator_.ahead(part)) (void)propose(*proposal);
    }
}

// ---- Proposals

/// Whether a next token is on its way to the first layer.
bool EarlyVerify::publish(const ExitPart& part) {
    if (part.rows.empty() || host_.requests.gone(*part.state)) return false;
    evaluator_.remember(part);
    if (evaluator_.options().sends_candidates) {
        if (std::optional<msg::Proposal> candidates = evaluator_.candidates_of(part)) {
            candidates->route.epoch = host_.context->epoch();
            for (const StageId to : evaluator_.options().candidates_to)
                (void)emit<EarlyVerify>(*host_.context, to, *candidates);
        }
    }
    if (!evaluator_.options().proposes) return false;
    const std::optional<msg::Proposal> early = evaluator_.early(part);
    return early && propose(*early);
}

/// To the dispatcher, of this segment or of another. False if the channel was full.
bool EarlyVerify::propose(msg::Proposal proposal) {
    proposal.route.epoch = host_.context->epoch();
    host_.context->trace({.kind = TraceKind::Proposal,
                          .request = proposal.route.request,
                          .attempt = proposal.route.attempt,
                          .position = proposal.root_position,
                          .count = proposal.count});
    if (position_.dispatcher == nullptr) {
        return emit<EarlyVerify>(*host_.context, position_.first_segment, proposal) == Push::Ok;
    }
    position_.dispatcher->propose(proposal);
    return true;
}

}  // namespace paceline
