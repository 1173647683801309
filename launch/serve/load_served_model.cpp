#include "launch/serve/load_served_model.hpp"

#include <chrono>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "launch/api/model_info.hpp"
#include "launch/base/report.hpp"
#include "launch/config/method_list.hpp"
#include "launch/load/model_use.hpp"
#include "launch/placement/method_fit.hpp"
#include "launch/plan/method_history.hpp"
#include "launch/serve/method/served_pipelines.hpp"

namespace paceline::serve {
namespace {

void tell(const std::string& what) {
    remark("serve", what);
}

/// The methods to try, in this order.
AutoChoice choice_of(const ServeOptions& options, const MethodHistory& history) {
    if (!options.config_file.empty()) return {.method = {}, .reason = "--config"};
    if (options.method == kPlainMethod) return {.method = kPlainPipeline, .reason = {}};
    if (options.method != kAutoMethod) return {.method = options.method, .reason = {}};
    return history.choose(kPlainPipeline);
}

GrammarHelperOptions grammar_options(const ServeOptions& options) {
    GrammarHelperOptions made;
    made.limits.processor_time = std::chrono::milliseconds{std::llround(options.grammar_s * 1e3)};
    return made;
}

Status check_context(const ServeOptions& options, const ModelFile& file) {
    if (options.model.context <= file.config().context_length) return {};
    return Error{Errc::BadArgument,
                 fmt::format("-c {} is more than the model's context of {} tokens",
                             options.model.context, file.config().context_length)};
}

/// How the model's pipeline is replaced.
MethodChanges changes_of(ServedModel& model, const ServedPipelines& pipelines) {
    const ModelFile& file = model.opened.file;
    return {.open = [&model, pipelines](const std::string& method) -> Result<ServedPipeline> {
                Result<ServedPipeline> opened = pipelines.open_any(model.opened.file, method);
                if (!opened || opened.value().session->context() >= model.context) return opened;
                return Error{Errc::OutOfMemory,
                             fmt::format("its context is {} tokens, less than {}",
                                         opened.value().session->context(), model.context)};
            },
            .fits_beside =
                [&file, pipelines](const std::string& method) {
                    return pipelines.fits_beside(file, method);
                },
            .shown = model.method.get(),
            .tell = tell};
}

/// The same pipeline once more.
PipelineChange::Open again_of(ServedModel& model,
                              const ServedPipelines& pipelines,
                              const std::string& method) {
    return [open = changes_of(model, pipelines).open,
            method]() -> Result<std::unique_ptr<PipelineSession>> {
        Result<ServedPipeline> opened = open(method);
        if (!opened) return opened.error();
        return std::move(opened.value().session);
    };
}

/// The other machines of `pipelines`, if there are any.
Result<std::unique_ptr<ServedMachines>> meet_machines(const ServeOptions& options,
                                                      const Environment& environment,
                                                      RunLog& log,
                                                      const std::string& method,
                                                      const ServedPipelines& pipelines,
                                                      const ConductorHub::OnMissing& waits_for) {
    const Result<std::optional<StarterPlace>> place = conductor_place(options.meeting, environment);
    if (!place) return place.error();
    if (!place.value()) return std::unique_ptr<ServedMachines>{};
    const Result<SupervisionConfig> supervision =
        pipelines.supervision(method, options.draft_model);
    if (!supervision) return supervision.error();
    const auto tell_missing = [&waits_for](const std::string& missing) {
        tell("waiting for " + missing);
        waits_for(missing);
    };
    Result<std::unique_ptr<ServedMachines>> machines = ServedMachines::open(
        *place.value(), options.meeting, environment, supervision.value(), log, tell_missing, tell);
    if (machines) waits_for("");
    return machines;
}

Result<std::unique_ptr<ServedModel>> open_served(const ServeOptions& options,
                                                 const Environment& environment) {
    Result<OpenedModel> opened = open_model(options.model, environment);
    if (!opened) return opened.error();
    auto model = std::make_unique<ServedModel>(ServedModel{std::move(opened).value()});
    const ModelFile& file = model->opened.file;
    if (Status s = check_context(options, file); !s) return s.error();
    Result<ChatTemplate> chat = chat_template_of(file);
    if (chat) {
        model->chat = std::move(chat).value();
        model->forms = chat_forms(file, model->tokenizer());
    } else {
        model->no_chat = chat.error().what;
        tell("chat is refused, completions work: " + model->no_chat);
    }
    model->name = model_name(options.alias, file.path());
    model->running = options.requests;
    model->waiting = options.queue;
    model->created = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    return model;
}

}  // namespace

Result<LoadedModel> load_served_model(const ServeOptions& options,
                                      const Environment& environment,
                                      RunLog& log,
                                      const ConductorHub::OnMissing& waits_for) {
    Result<std::unique_ptr<ServedModel>> opened = open_served(options, environment);
    if (!opened) return opened.error();
    ServedModel& model = *opened.value();
    MethodHistory history{
        model.opened.file,
        options.model,
        options.draft_model,
        environment.cache_folder,
        {.requests = options.requests, .batches = MethodHistory::Batches::AsTheyCome}};
    history.leave_out_if(
        own_part_lacking(model.opened.file, parts_search(options.model.parts, environment)));
    const AutoChoice choice = choice_of(options, history);
    if (options.method == kAutoMethod && options.config_file.empty())
        tell("method " + choice.method + ": " + choice.reason);
    std::vector<std::string> methods{choice.method};
    methods.insert(methods.end(), choice.fallbacks.begin(), choice.fallbacks.end());
    ServedPipelines pipelines{options, environment, log};
    Result<std::unique_ptr<ServedMachines>> met =
        meet_machines(options, environment, log, choice.method, pipelines, waits_for);
    if (!met) return met.error();
    if (met.value()) {
        pipelines.use(met.value()->cluster());
        model.missing_machines = [&machines = *met.value()] { return machines.missing(); };
    }
    std::optional<Error> failure;
    std::string tried;
    for (const std::string& method : methods) {
        if (failure) {
            tell(fmt::format("method {} could not be started ({}); {} is tried", tried,
                             failure->what, method));
        }
        tried = method;
        // The draft model is of the first one.
        Result<ServedPipeline> pipeline =
            pipelines.open(model.opened.file, method, failure ? "" : options.draft_model);
        if (!pipeline) {
            failure = pipeline.error();
            continue;
        }
        auto [session, config, load_seconds] = std::move(pipeline).value();
        model.method->set({.name = config.name,
                           .reason = method == choice.method ? choice.reason : failure->what,
                           .gamma = gamma_max(config)});
        model.context = session->context();
        model.service = std::make_unique<Service>(
            std::move(session),
            ServiceOptions{.running = static_cast<std::size_t>(options.requests),
                           .waiting = static_cast<std::size_t>(options.queue)},
            std::make_unique<GrammarHelpers>(
                grammar_vocabulary(model.opened.tokenizer,
                                   static_cast<std::size_t>(model.opened.file.config().vocab_size)),
                grammar_options(options)));
        LoadedModel loaded{std::move(met).value(), std::move(opened).value(),
                           config.supervision.drain};
        loaded.open_again = again_of(*loaded.model, pipelines, method);
        if (options.config_file.empty() && options.gpus.empty() && !loaded.machines) {
            loaded.method = std::make_unique<ServedMethod>(
                std::move(history),
                ServedMethod::Start{
                    .method = method,
                    .config = std::move(config),
                    .load_seconds = load_seconds,
                    .may_change = options.method == kAutoMethod && options.replan_s > 0.0},
                changes_of(*loaded.model, pipelines));
        }
        return loaded;
    }
    return *failure;
}

}  // namespace paceline::serve
