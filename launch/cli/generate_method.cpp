#include "launch/cli/generate_method.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/core.h>
#include <utility>
#include <vector>

#include "ipc/base/limits.hpp"
#include "launch/base/device.hpp"
#include "launch/base/progress_bar.hpp"
#include "launch/config/method_list.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/parts_search.hpp"
#include "launch/placement/method_fit.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/plan/method_watch.hpp"

namespace paceline {
namespace {

constexpr std::int64_t kLookTokens = 256;  // of a request, between two looks at the account

void tell(const std::string& what) {
    std::fprintf(stderr, "paceline generate: %s\n", what.c_str());
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

bool needs_plain(const GenerateOptions& options) {
    return !options.hidden.empty() || options.top > kTopScoresMax ||
           !device_of(options.model).exact;
}

Status check_method(const GenerateOptions& options) {
    if (options.method == kAutoMethod || options.method == kPlainMethod) return {};
    const auto bad = [](const std::string& what) { return Error{Errc::BadArgument, what}; };
    if (!options.hidden.empty()) return bad("--hidden: only --method plain gives residuals");
    if (options.top > kTopScoresMax)
        return bad(
            fmt::format("--top: only --method plain gives more than {} tokens", kTopScoresMax));
    if (!device_of(options.model).exact) return bad(kExactIsForPlain);
    const Result<PipelineConfig> known = method_config(options.method);
    return known ? Status{} : known.error();
}

std::optional<MethodLook> account_look(PipelineSession& session,
                                       AccountGain& gain,
                                       const VerdictTally& verdicts) {
    const AccountFigures account = session.usage().account;
    const std::optional<MethodRate> run = gain.since_last(account, verdicts, kLookTokens);
    if (!run) return std::nullopt;
    return MethodLook{.gain = run->gain, .plain_token_us = account.plain_token_us};
}

GenerateMethod::GenerateMethod(const GenerateOptions& options,
                               const ModelFile& file,
                               const BatchParams& params,
                               const Environment& environment,
                               Look look)
    : options_{options},
      file_{file},
      params_{params},
      environment_{environment},
      look_{std::move(look)},
      automatic_{options.method == kAutoMethod},
      history_{file,
               options.model,
               "",
               environment.cache_folder,
               {.requests = options.requests, .drawn = !params.request.sampling.greedy()}} {
    history_.leave_out_if(own_part_lacking(file, parts_search(options.model.parts, environment)));
}

AutoChoice GenerateMethod::first_choice() const {
    if (!automatic_) return {.method = options_.method, .reason = {}};
    if (needs_plain(options_))
        return {.method = kPlainMethod,
                .reason = fmt::format("only plain decoding gives --hidden, --top above {} and "
                                      "--exact off",
                                      kTopScoresMax)};
    return history_.choose_for_batches(kPlainMethod);
}

Result<GenerateMethod::Opened> GenerateMethod::open(const std::string& method,
                                                    std::span<const AnswerTask> tasks) {
    const auto begin = std::chrono::steady_clock::now();
    const Result<ConfigSource> source = method_source(method);
    if (!source) return source.error();
    Result<PipelineConfig> written = written_config(source.value(), device_of(options_.model), "");
    if (!written) return written.error();
    const PipelineConfig config = written.value();
    Result<ResolvedConfig> pipeline = use_parts(
        std::move(written).value(), parts_search(options_.model.parts, environment_), file_);
    if (!pipeline) return pipeline.error();
    const Show bars = bars_on(environment_);
    if (Status s =
            keep_draft_copy(pipeline.value(), file_, options_.model, environment_, {.bars = bars});
        !s)
        return s.error();
    // The KV caches get room for the longest answer, not for the whole context.
    std::size_t longest = 0;
    for (const AnswerTask& task : tasks) longest = std::max(longest, task.tokens.size());
    ModelOptions model = options_.model;
    model.context = std::min(params_.request.context,
                             static_cast<Position>(longest) + params_.request.max_tokens + 1);
    Result<std::unique_ptr<PipelineSession>> session = PipelineSession::open(
        file_, model, pipeline.value(),
        {.log = &log_, .output = {.table = false, .bars = bars}, .requests = params_.max_running});
    if (!session) return session.error();
    return Opened{.method = method,
                  .config = config,
                  .answers = std::make_unique<PipelineAnswers>(std::move(session).value(), params_),
                  .load_seconds = seconds_since(begin)};
}

Result<std::optional<GenerateMethod::Opened>> GenerateMethod::open_first(
    const AutoChoice& choice, std::span<const AnswerTask> tasks) {
    std::vector<std::string> methods{choice.method};
    methods.insert(methods.end(), choice.fallbacks.begin(), choice.fallbacks.end());
    for (const std::string& method : methods) {
        if (method == kPlainMethod) return std::optional<Opened>{};
        Result<Opened> opened = open(method, tasks);
        if (opened) return std::optional{std::move(opened).value()};
        if (method == methods.back()) return opened.error();
        tell(fmt::format("method {} could not be started ({}); the next one is tried", method,
                         opened.error().what));
    }
    return std::optional<Opened>{};
}

Result<std::optional<AutoChoice>> GenerateMethod::answer_with(Opened& opened,
                                                              std::span<const AnswerTask>& tasks,
                                                              const PipelineAnswers::Done& done,
                                                              const CancelToken& cancel) {
    PipelineSession& session = opened.answers->session();
    AccountGain looks{opened.config};
    AccountGain whole{opened.config};  // for the record: these answers are one run
    MethodWatch watch{history_, opened.method, kPlainMethod, opened.load_seconds};
    std::optional<AutoChoice> next;
    std::size_t answers = 0;
    VerdictTally verdicts;
    const auto go_on = [&](const VerdictTally& so_far) {
        ++answers;
        verdicts = so_far;
        if (next || !automatic_) return !next;
        const std::optional<MethodLook> seen = look_(session, looks, so_far);
        if (!seen) return true;
        const double tokens = static_cast<double>(so_far.emitted) / static_cast<double>(answers) *
                              static_cast<double>(tasks.size() - answers) / params_.max_running;
        next = watch.look(history_.over_plain(seen->gain), tokens * seen->plain_token_us / 1e6);
        return !next;
    };
    const Result<std::size_t> answered = opened.answers->run(tasks, done, go_on, cancel);
    // An interrupted run has shown as much as one that went on.
    if (answered || answered.error().code == Errc::Cancelled) {
        if (const auto run = whole.since_last(session.usage().account, verdicts))
            history_.add(opened.method, *run);
    }
    if (!answered) return answered.error();
    tasks = tasks.subspan(answered.value());
    return next;
}

Result<std::span<const AnswerTask>> GenerateMethod::run(std::span<const AnswerTask> tasks,
                                                        const PipelineAnswers::Done& done,
                                                        const std::function<void()>& loaded,
                                                        const CancelToken& cancel) {
    std::optional<AutoChoice> choice = first_choice();
    bool first = true;
    while (!tasks.empty() && choice) {
        if (automatic_) tell(fmt::format("method {}: {}", choice->method, choice->reason));
        Result<std::optional<Opened>> opened = open_first(*choice, tasks);
        if (!opened) return opened.error();
        if (!opened.value()) {
            if (automatic_) history_.add_plain(static_cast<std::int64_t>(tasks.size()));
            return tasks;
        }
        if (std::exchange(first, false)) loaded();
        Result<std::optional<AutoChoice>> next = answer_with(*opened.value(), tasks, done, cancel);
        if (!next) return next.error();
        choice = std::move(next).value();
    }
    return tasks;
}

}  // namespace paceline
