#include "launch/check/run.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <utility>

#include "launch/config/methods.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/pipeline_start.hpp"
#include "launch/session/prompt_queue.hpp"

namespace paceline {
namespace {

double in_seconds(Micros time) {
    return std::chrono::duration<double>(time).count();
}

Status check_slow_stages(const FaultPlan& plan, const std::vector<PlacedProcess>& processes) {
    for (const SlowStage& slow : plan.slow) {
        std::string names;
        bool found = false;
        for (const PlacedProcess& process : processes) {
            found = found || process.name == slow.name;
            names += (names.empty() ? "" : ", ") + process.name;
        }
        if (found) continue;
        return Error{Errc::BadArgument, fmt::format("--delay {}:{}: no process is called '{}'; "
                                                    "there are {}",
                                                    slow.name, slow.percent, slow.name, names)};
    }
    return {};
}

/// Tokens after the first of each, over the time that they took.
double rate_of(const std::vector<Answer>& answers) {
    double tokens = 0.0;
    double seconds = 0.0;
    for (const Answer& answer : answers) {
        const double rate = answer.stats.decode_rate();
        if (rate <= 0) continue;
        const auto behind_first = static_cast<double>(answer.ids.size() - 1);
        tokens += behind_first;
        seconds += behind_first / rate;
    }
    return seconds > 0 ? tokens / seconds : 0.0;
}

double rate_at_once(const std::vector<Answer>& answers) {
    Micros begun = Micros::max();
    Micros ended{0};
    double tokens = 0.0;
    for (const Answer& answer : answers) {
        if (answer.ids.empty()) continue;
        begun = std::min(begun, answer.stats.begun);
        ended = std::max(ended, answer.stats.last_token);
        tokens += static_cast<double>(answer.ids.size());
    }
    return ended > begun ? tokens / in_seconds(ended - begun) : 0.0;
}

}  // namespace

bool CheckResult::equal(std::size_t prompt) const {
    const Answer& answer = answers[prompt];
    return answer.status.ok() && !first_difference(answer.ids, plain[prompt].ids) &&
           answer.scores == plain[prompt].scores &&
           answer.prompt_scores == plain[prompt].prompt_scores;
}

bool CheckResult::all_equal() const {
    for (std::size_t i = 0; i < answers.size(); ++i) {
        if (!equal(i)) return false;
    }
    return true;
}

Result<CheckResult> check_pipeline(const OpenedModel& model,
                                   const ModelOptions& options,
                                   const ResolvedConfig& pipeline,
                                   const CheckTask& task,
                                   const Environment& environment,
                                   RunLog& log) {
    const PipelineConfig& config = pipeline.config;
    if (config.acceptance == AcceptanceRule::Rejection) {
        return Error{Errc::BadArgument, config.file +
                                            ": acceptance.rule = \"rejection\" keeps the "
                                            "distribution of texts, not the text; check compares "
                                            "texts"};
    }
    Result<std::vector<std::vector<TokenId>>> prompts =
        encode_prompts(task.prompts, model.file, model.tokenizer);
    if (!prompts) return prompts.error();
    // Before anything is decoded: what is wrong with the pipeline is not told minutes later.
    const Result<PipelinePlan> plan = plan_pipeline(
        model.file, options, pipeline, {.contexts = task.at_once, .bytes = task.kv_memory});
    if (!plan) return plan.error();
    if (Status s = check_slow_stages(task.faults, plan.value().placement.processes); !s)
        return s.error();
    ModelOptions plain_options = options;
    plain_options.device = to_text(target_device(config));
    Result<std::vector<Answer>> plain =
        decode_plainly(model.file, plain_options, environment, prompts.value(), task.request);
    if (!plain) return plain.error();
    CheckResult result;
    result.plain = std::move(plain).value();

    SessionOptions session_options;
    session_options.log = &log;
    session_options.trace = true;
    session_options.requests = task.at_once;
    session_options.kv_memory = task.kv_memory;
    session_options.output.table = environment.stderr_is_terminal || log.verbose();
    session_options.output.remarks = task.remarks;
    session_options.output.bars = log.verbose() ? Show::No : bars_on(environment);
    Result<std::unique_ptr<PipelineSession>> opened =
        PipelineSession::open(model.file, options, pipeline, session_options);
    if (!opened) return opened.error();
    PipelineSession& session = *opened.value();
    {
        const auto tokens = static_cast<std::size_t>(std::max(1, task.request.max_tokens));
        StageFaults faults{task.faults, prompts.value().size(), tokens};
        PromptQueue queue{
            prompts.value(), task.request,
            [&](AnswerOrder order) { return session.submit(std::move(order)); },
            [&](std::size_t index, std::size_t given) { faults.tick(index, given, session); }};
        session.call([&] { queue.begin(task.at_once); });
        if (Status s = session.run(); !s) return s.error();
        result.answers = std::move(queue.answers);
        result.kills = faults.kills();
        result.stalls = faults.stalls();
    }
    result.stats = session.stats();
    const Result<BusySpans> spans = spans_of_trace(session.trace_text());
    if (spans) result.overlap = overlap_of(spans.value());
    result.stats.rate = task.at_once > 1 ? rate_at_once(result.answers) : rate_of(result.answers);
    result.stats.baseline_rate = rate_of(result.plain);
    return result;
}

}  // namespace paceline
