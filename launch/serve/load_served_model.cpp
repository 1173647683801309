#include "launch/serve/load_served_model.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "launch/api/model_info.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/model_use.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/plan/method_history.hpp"
#include "launch/session/pipeline_start.hpp"
#include "launch/session/place_on_gpus.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

void tell(const std::string& what) {
    std::fprintf(stderr, "paceline serve: %s\n", visible_lines(what).c_str());
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

/// The configuration of --config, or of `method`.
Result<PipelineConfig> config_of(const ServeOptions& options, const std::string& method) {
    Result<ConfigSource> source =
        options.config_source ? *options.config_source : method_source(method);
    if (!source) return source.error();
    return written_config(source.value(), device_of(options.model), options.draft_model);
}

/// Starts the pipeline of `written` for the model. Its session borrows the file.
Result<std::unique_ptr<PipelineSession>> start(const ServedModel& model,
                                               PipelineConfig written,
                                               const ServeOptions& options,
                                               const Environment& environment,
                                               RunLog& log) {
    const ModelFile& file = model.opened.file;
    const PartsSearch search = parts_search(options.model.parts, environment);
    Result<ResolvedConfig> pipeline = use_parts(std::move(written), search, file);
    if (!pipeline) return pipeline.error();
    if (!options.gpus.empty()) {
        Result<ResolvedPipeline> placed =
            place_on_gpus(std::move(pipeline).value(), options.model, file, {.gpus = options.gpus});
        if (!placed) return placed.error();
        tell(placed.value().gpu_table);
        pipeline = std::move(placed.value().resolved);
    }
    const Show bars = log.verbose() ? Show::No : bars_on(environment);
    if (Status s =
            keep_draft_copy(pipeline.value(), file, options.model, environment, {.bars = bars});
        !s)
        return s.error();
    for (const std::string& why : pipeline.value().parts.omitted)
        tell("left out: " + visible(why, kLineShownBytesMax));
    const bool table = log.verbose() || environment.stderr_is_terminal;
    return PipelineSession::open(file, options.model, pipeline.value(),
                                 {.log = &log,
                                  .output = {.table = table, .remarks = true, .bars = bars},
                                  .requests = options.requests,
                                  .kv_memory = options.kv_memory});
}

Status check_context(const ServeOptions& options, const ModelFile& file) {
    if (options.model.context <= file.config().context_length) return {};
    return Error{Errc::BadArgument,
                 fmt::format("-c {} is more than the model's context of {} tokens",
                             options.model.context, file.config().context_length)};
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
                                      RunLog& log) {
    Result<std::unique_ptr<ServedModel>> opened = open_served(options, environment);
    if (!opened) return opened.error();
    ServedModel& model = *opened.value();
    MethodHistory history{model.opened.file,   options.model,
                          options.draft_model, environment.cache_folder,
                          options.requests,    MethodHistory::Batches::AsTheyCome};
    const AutoChoice choice = choice_of(options, history);
    if (options.method == kAutoMethod && options.config_file.empty())
        tell("method " + choice.method + ": " + choice.reason);
    std::vector<std::string> methods{choice.method};
    methods.insert(methods.end(), choice.fallbacks.begin(), choice.fallbacks.end());
    ServeOptions tried = options;
    std::optional<Error> failure;
    for (const std::string& method : methods) {
        if (failure) {
            tell(fmt::format("method {} could not be started ({}); {} is tried", tried.method,
                             failure->what, method));
            tried.draft_model.clear();  // of the first one
        }
        tried.method = method;
        Result<PipelineConfig> written = config_of(tried, method);
        if (!written) {
            failure = written.error();
            continue;
        }
        const std::chrono::milliseconds drain = written.value().supervision.drain;
        model.method = written.value().name;
        model.gamma = gamma_max(written.value());
        const PipelineConfig config = written.value();
        Result<std::unique_ptr<PipelineSession>> session =
            start(model, std::move(written).value(), tried, environment, log);
        if (!session) {
            failure = session.error();
            continue;
        }
        model.reason = method == choice.method ? choice.reason : failure->what;
        model.context = session.value()->context();
        model.service = std::make_unique<Service>(
            std::move(session).value(),
            ServiceOptions{.running = static_cast<std::size_t>(options.requests),
                           .waiting = static_cast<std::size_t>(options.queue)},
            std::make_unique<GrammarHelpers>(
                grammar_vocabulary(model.opened.tokenizer,
                                   static_cast<std::size_t>(model.opened.file.config().vocab_size)),
                grammar_options(options)));
        LoadedModel loaded{std::move(opened).value(), drain};
        if (options.config_file.empty() && options.gpus.empty())
            loaded.record.emplace(std::move(history), method, config);
        return loaded;
    }
    return *failure;
}

}  // namespace paceline::serve
