#include "actors/segment/final_verify.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "ipc/base/faults.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

msg::OwnTokens own_tokens(const msg::Verdict& verdict, const VerifyPart& verified) {
    msg::OwnTokens own{};
    own.route = verdict.route;
    own.batch = verdict.batch;
    own.root_position = verified.rows.front().position;
    own.root_token = verified.rows.front().token;
    for (const msg::OwnToken& each : verified.own) {
        if (own.count < msg::kOwnTokensMax) own.tokens[own.count++] = each;
    }
    return own;
}

}  // namespace

FinalVerify::FinalVerify(SegmentHost& host,
                         Backend& backend,
                         VerifyOptions options,
                         VerdictReceivers to)
    : host_{host},
      backend_{backend},
      to_{std::move(to)},
      job_{backend, options},
      hidden_{backend.make_rows(host.limits.batch_rows)} {}

Status FinalVerify::prepare(const SegmentRun& run) {
    for (const RunPart& part : run.parts) {
        if (part.prefill() || run.rows[part.first].node == part.state->tree().root().id) continue;
        return Error{Errc::Protocol,
                     fmt::format("a batch of request {} reaches the last segment without its root",
                                 part.state->request().value)};
    }
    draw_with_layers(run);
    job_.parts.clear();
    job_.prompts.clear();
    for (const RunPart& part : run.parts) {
        if (part.prefill()) {
            add_prompt(run, part);
            continue;
        }
        const auto rows = run.rows_of(part);
        const std::span<const std::optional<TokenId>> drawn{job_.drawn};
        std::vector<DrawnSiblingsPtr> drawn_below;
        const bool draws = part.state->spec().acceptance == AcceptanceRule::Rejection;
        for (std::size_t i = 0; draws && i < rows.size(); ++i) {
            const TreeNode* node = part.state->tree().find(rows[i].node);
            if (node == nullptr || node->drawn_below == nullptr) continue;
            drawn_below.resize(rows.size());
            drawn_below[i] = node->drawn_below;
        }
        job_.parts.push_back(
            {.state = *part.state,
             .committed = part.committed,
             .rows = rows,
             .hidden = run.job.hidden.subspan(part.first * run.dim(), rows.size() * run.dim()),
             .drawn = drawn.empty() ? drawn : drawn.subspan(part.first, rows.size()),
             .drawn_below = std::move(drawn_below)});
    }
    return {};
}

/// On a replay rows of the answer so far are computed like a prompt, and are known.
void FinalVerify::add_prompt(const SegmentRun& run, const RunPart& part) {
    const BeginPayload& spec = part.state->spec();
    if (!spec.scores.prompt) return;
    const auto rows = run.rows_of(part);
    const Position base = rows.front().position;
    const Position prompt = part.state->finish_rule().answer_begin;
    if (base + 1 >= prompt) return;
    const auto count =
        std::min<std::size_t>(rows.size(), static_cast<std::size_t>(prompt - 1 - base));
    job_.prompts.push_back(
        {.state = *part.state,
         .base = base,
         .count = count,
         .hidden = run.job.hidden.subspan(part.first * run.dim(), count * run.dim())});
}

/// The target's tokens come with the layers if the device can draw all of them: one wait for the
/// run. After a row of prefill no token is drawn.
void FinalVerify::draw_with_layers(const SegmentRun& run) {
    job_.draws.clear();
    job_.drawn.clear();
    const bool all = std::all_of(run.parts.begin(), run.parts.end(), [&](const RunPart& part) {
        return part.prefill() ? !part.state->spec().scores.prompt
                              : job_.verifier.draws_behind_rows(*part.state);
    });
    if (!all || backend_.device_sampler() == nullptr) return;
    job_.draws.resize(run.rows.size());
    job_.drawn.resize(run.rows.size());
    for (const RunPart& part : run.parts) {
        if (part.prefill()) continue;
        const auto rows = run.rows_of(part);
        for (std::size_t i = 0; i < rows.size(); ++i)
            job_.draws[part.first + i] = Verifier::job_behind(*part.state, rows[i]);
    }
}

msg::Verdict FinalVerify::announce(const VerifyPart& verified,
                                   const RunPart& part,
                                   const msg::BatchCost& cost) {
    const msg::Route route{.request = part.part.request,
                           .attempt = part.state->attempt(),
                           .epoch = host_.context->epoch()};
    msg::Verdict verdict =
        make_verdict(route, part.part.batch, static_cast<Position>(verified.committed.size()),
                     verified.rows, verified.result);
    verdict.cost = cost;
    verdict.cached = part.state->cached();
    verdict.matched = part.state->matched();
    fault_point(FaultPoint::VerdictMade);
    send(route, verdict.base, verified.result.scores);
    send(verdict, own_tokens(verdict, verified));
    return verdict;
}

void FinalVerify::send_scores(const SegmentRun& run) {
    for (const ScoredRows& prompt : job_.prompts) {
        const bool runs = std::any_of(run.parts.begin(), run.parts.end(), [&](const RunPart& part) {
            return part.state.get() == &prompt.state && part.prefill();
        });
        if (!runs) continue;
        send({.request = prompt.state.request(),
              .attempt = prompt.state.attempt(),
              .epoch = host_.context->epoch()},
             prompt.base + 1, prompt.scores);
    }
}

/// Tokens with as many neighbours share a message.
void FinalVerify::send(const msg::Route& route,
                       Position first,
                       std::span<const TokenScores> scores) {
    while (!scores.empty()) {
        const std::size_t top = scores.front().top.size();
        const std::size_t room = msg::kScoreEntriesMax / (1 + top);
        std::size_t count = 0;
        msg::Scores message{};
        message.route = route;
        message.first = first;
        message.top = static_cast<std::uint32_t>(top);
        auto entry = message.entries.begin();
        while (count < std::min(room, scores.size()) && scores[count].top.size() == top) {
            const TokenScores& token = scores[count++];
            *entry++ = {token.rank, token.log_prob};
            for (const ScoredToken& other : token.top) *entry++ = {other.token, other.log_prob};
        }
        message.tokens = static_cast<std::uint32_t>(count);
        host_.outbox->send<FinalVerify>(kConductor, message);
        first += static_cast<Position>(count);
        scores = scores.subspan(count);
    }
}

void FinalVerify::send(const msg::Verdict& verdict, const msg::OwnTokens& own) {
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
            if (own.count > 0) (void)emit<FinalVerify>(context, to, own);
            (void)emit<FinalVerify>(context, to, verdict);
        } else {
            host_.outbox->send<FinalVerify>(to, verdict);
        }
    }
}

}  // namespace paceline
