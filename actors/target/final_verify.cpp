#include "actors/target/final_verify.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

FinalVerify::FinalVerify(SegmentHost& host,
                         Backend& backend,
                         VerifyOptions options,
                         VerdictReceivers to)
    : host_{host},
      backend_{backend},
      options_{options},
      to_{std::move(to)},
      verifier_{backend, options},
      hidden_{backend.make_rows(host.limits.batch_rows)} {}

Status FinalVerify::prepare(const SegmentRun& run) {
    for (const RunPart& part : run.parts) {
        if (part.prefill() || run.named[part.first].node == part.state->tree().root().id) continue;
        return Error{Errc::Protocol,
                     fmt::format("a batch of request {} reaches the last segment without its root",
                                 part.state->request().value)};
    }
    draw_with_layers(run);
    parts_.clear();
    for (const RunPart& part : run.parts) {
        if (part.prefill()) continue;
        const auto rows = run.rows_of(part);
        const std::span<const std::optional<TokenId>> drawn{drawn_};
        std::vector<DrawnSiblingsPtr> drawn_below;
        const bool draws = part.state->spec().acceptance == AcceptanceRule::Rejection;
        for (std::size_t i = 0; draws && i < rows.size(); ++i) {
            const TreeNode* node = part.state->tree().find(rows[i].node);
            if (node == nullptr || node->drawn_below == nullptr) continue;
            drawn_below.resize(rows.size());
            drawn_below[i] = node->drawn_below;
        }
        parts_.push_back(
            {.state = *part.state,
             .committed = part.committed,
             .rows = rows,
             .hidden = run.hidden.subspan(part.first * run.dim(), rows.size() * run.dim()),
             .drawn = drawn.empty() ? drawn : drawn.subspan(part.first, rows.size()),
             .drawn_below = std::move(drawn_below)});
    }
    return {};
}

/// The target's tokens come with the layers if the device can draw all of them: one wait for the
/// run. After a row of prefill no token is drawn.
void FinalVerify::draw_with_layers(const SegmentRun& run) {
    jobs_.clear();
    drawn_.clear();
    const bool all = std::all_of(run.parts.begin(), run.parts.end(), [&](const RunPart& part) {
        return part.prefill() || verifier_.draws_behind_rows(*part.state);
    });
    if (!all || backend_.device_sampler() == nullptr) return;
    jobs_.resize(run.named.size());
    drawn_.resize(run.named.size());
    for (const RunPart& part : run.parts) {
        if (part.prefill()) continue;
        const auto rows = run.rows_of(part);
        for (std::size_t i = 0; i < rows.size(); ++i)
            jobs_[part.first + i] = Verifier::job_behind(*part.state, rows[i]);
    }
}

std::uint32_t FinalVerify::heads() const {
    std::uint32_t heads = 0;
    for (const VerifyPart& part : parts_) {
        heads +=
            jobs_.empty() ? depth_of(part.rows) + 1 : static_cast<std::uint32_t>(part.rows.size());
    }
    if (!jobs_.empty()) return heads;
    return std::min(heads, std::max(options_.head_rows, static_cast<std::uint32_t>(parts_.size())));
}

RunOutcome FinalVerify::run_layers(SegmentRun& run, bool keep_hidden) {
    if (jobs_.empty()) return backend_.run_layers(run.rows, run.hidden, &run.cancel);
    return backend_.device_sampler()->run_and_draw(
        run.rows, run.hidden, {.jobs = jobs_, .hidden = keep_hidden}, drawn_, &run.cancel);
}

void FinalVerify::verify() {
    if (!parts_.empty()) verifier_.verify(parts_);
}

msg::Verdict FinalVerify::announce(const VerifyPart& verified, const RunPart& part) {
    const msg::Route route{.request = part.part.request,
                           .attempt = part.state->attempt(),
                           .epoch = host_.context->epoch()};
    const msg::Verdict verdict =
        make_verdict(route, part.part.batch, static_cast<Position>(verified.committed.size()),
                     verified.rows, verified.result);
    fault_point(FaultPoint::VerdictMade);
    send(verdict);
    return verdict;
}

void FinalVerify::send(const msg::Verdict& verdict) {
    const msg::Route& route = verdict.route;
    StageContext& context = *host_.context;
    // Jobs receive no messages: they read here that rows with another token are stale.
    if (verdict.count > 0) {
        context.publish_watermark(route.request, route.attempt,
                                  verdict.base + static_cast<Position>(verdict.count) - 1,
                                  verdict.tokens[verdict.count - 1]);
    }
    context.count(counters::kVerdicts);
    context.count(counters::kTokensProposed, verdict.batch_rows - 1);
    context.count(counters::kTokensAccepted, verdict.count > 0 ? verdict.count - 1 : 0);
    context.trace({.kind = TraceKind::Verdict,
                   .request = route.request,
                   .attempt = route.attempt,
                   .id = verdict.batch.value,
                   .position = verdict.base,
                   .count = verdict.count});
    for (const StageId to : to_.all) {
        const bool may_be_lost =
            std::find(to_.speculative.begin(), to_.speculative.end(), to) != to_.speculative.end();
        if (may_be_lost) {
            (void)emit<FinalVerify>(context, to, verdict);
        } else {
            host_.outbox->send<FinalVerify>(to, verdict);
        }
    }
}

}  // namespace paceline
