#include "launch/tools/check_run.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>

#include "launch/config/methods.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/pipeline_start.hpp"

namespace paceline {
namespace {

double seconds_of(Micros time) {
    return std::chrono::duration<double>(time).count();
}

/// Asks the prompts of a session, some at a time, and keeps what comes back.
class Asking {
public:
    Asking(PipelineSession& session,
           const std::vector<std::vector<TokenId>>& prompts,
           const CheckTask& task,
           StageFaults& faults)
        : session_{session}, prompts_{prompts}, task_{task}, faults_{faults} {
        answers.resize(prompts.size());
    }

    void begin() {
        for (int i = 0; i < task_.at_once; ++i) next();
    }

    std::vector<CheckedAnswer> answers;

private:
    void next() {
        while (asked_ < prompts_.size()) {
            const std::size_t index = asked_++;
            const Result<RequestId> taken = session_.submit(order_of(index));
            if (taken) return;
            answers[index].error = taken.error().what;
        }
    }

    AnswerOrder order_of(std::size_t index) {
        AnswerOrder order;
        order.request = task_.request;
        order.request.text = prompts_[index];
        order.on_token = [this, index](TokenId token) {
            answers[index].ids.push_back(token);
            faults_.tick(index, answers[index].ids.size(), session_);
            return Go::On;
        };
        order.on_end = [this, index](const AnswerFigures& figures, const Status& status) {
            CheckedAnswer& answer = answers[index];
            answer.figures = figures;
            if (!status.ok()) answer.error = status.error().what;
            answer.rate = figures.decode_rate();
            next();
        };
        return order;
    }

    PipelineSession& session_;
    const std::vector<std::vector<TokenId>>& prompts_;
    const CheckTask& task_;
    StageFaults& faults_;
    std::size_t asked_ = 0;
};

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
template <class Answers>
double rate_of(const Answers& answers) {
    double tokens = 0.0;
    double seconds = 0.0;
    for (const auto& answer : answers) {
        if (answer.rate <= 0) continue;
        const auto behind_first = static_cast<double>(answer.ids.size() - 1);
        tokens += behind_first;
        seconds += behind_first / answer.rate;
    }
    return seconds > 0 ? tokens / seconds : 0.0;
}

double rate_at_once(const std::vector<CheckedAnswer>& answers) {
    Micros begun = Micros::max();
    Micros ended{0};
    double tokens = 0.0;
    for (const CheckedAnswer& answer : answers) {
        if (answer.ids.empty()) continue;
        begun = std::min(begun, answer.figures.begun);
        ended = std::max(ended, answer.figures.last_token);
        tokens += static_cast<double>(answer.ids.size());
    }
    return ended > begun ? tokens / seconds_of(ended - begun) : 0.0;
}

}  // namespace

bool CheckResult::equal(std::size_t prompt) const {
    const CheckedAnswer& answer = answers[prompt];
    return answer.error.empty() && !first_difference(answer.ids, plain[prompt].ids);
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
    const Result<PipelinePlan> plan = plan_pipeline(model.file, options, pipeline, task.at_once);
    if (!plan) return plan.error();
    if (Status s = check_slow_stages(task.faults, plan.value().placement.processes); !s)
        return s.error();
    ModelOptions plain_options = options;
    plain_options.device = to_text(target_device(config));
    Result<std::vector<PlainAnswer>> plain =
        decode_plainly(model.file, plain_options, environment, prompts.value(), task.request);
    if (!plain) return plain.error();
    CheckResult result;
    result.plain = std::move(plain).value();

    SessionOptions session_options;
    session_options.log = &log;
    session_options.trace = true;
    session_options.requests = task.at_once;
    session_options.told.table = environment.stderr_is_terminal || log.verbose();
    session_options.told.bars = log.verbose() ? Show::No : bars_on(environment);
    Result<std::unique_ptr<PipelineSession>> opened =
        PipelineSession::open(model.file, options, pipeline, session_options);
    if (!opened) return opened.error();
    PipelineSession& session = *opened.value();
    {
        const auto tokens = static_cast<std::size_t>(std::max(1, task.request.max_tokens));
        StageFaults faults{task.faults, prompts.value().size(), tokens};
        Asking asking{session, prompts.value(), task, faults};
        asking.begin();
        if (Status s = session.run(); !s) return s.error();
        result.answers = std::move(asking.answers);
        result.kills = faults.kills();
        result.stalls = faults.stalls();
    }
    result.figures = session.figures();
    const Result<BusySpans> spans = spans_of_trace(session.trace_text());
    if (spans) result.overlap = overlap_of(spans.value());
    result.plain_rate = rate_of(result.plain);
    result.pipeline_rate =
        task.at_once > 1 ? rate_at_once(result.answers) : rate_of(result.answers);
    result.figures.rate = result.pipeline_rate;
    result.figures.baseline_rate = result.plain_rate;
    return result;
}

}  // namespace paceline
