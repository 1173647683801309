#include "launch/check/check.hpp"

#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "launch/base/exit_codes.hpp"
#include "launch/base/json_text.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/base/report.hpp"
#include "launch/check/report.hpp"
#include "launch/check/run.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/simulate/settings.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr const char* kCheckCommand = "check";

constexpr const char* kCheckFooter =
    R"(Decodes every prompt plainly in one process, then with the pipeline, and compares the tokens.
Exit codes: 0 all equal, 1 a difference or a failure, 2 a wrong command line. Examples:
  paceline check --config my-pipeline.toml
  paceline check --method fold --requests 4 --temp 0.8 --top-p 0.95 --seed 7 --kills 6
  paceline check --method pearl --prompts questions.jsonl --first 20 --stalls 10 --delay draft:80)";

void add_what(Command& command, CheckOptions& options) {
    command.add_option("--config", options.config_file, "pipeline of processes (configs/*.toml)");
    command.add_option("--method", options.method, "one of paceline run --list-methods")
        .excludes("--config");
    command.add_option(
        "--draft-model", options.draft_model,
        "model that drafts, instead of the configuration's: a GGUF file, a Hugging Face folder "
        "or OWNER/NAME");
    command
        .add_option("--set", options.settings,
                    "change the configuration: SECTION.KEY=VALUE or exit-layer=N; may be repeated")
        .repeated();
    add_prompt_set_options(command, options.prompts_file, options.prompts_max, options.max_tokens);
    add_requests_options(command, options.at_once, options.kv_memory);
}

void add_faults(Command& command, CheckOptions& options) {
    command.add_option("--kills", options.kills,
                       "kill -9 a random stage so often, in the middle of answers; give the "
                       "configuration's [supervision] enough restarts",
                       whole_number(0, 10'000));
    command.add_option("--stalls", options.stalls,
                       "stop a random stage so often, and continue it up to 0.3 s later",
                       whole_number(0, 10'000));
    command
        .add_option(
            "--delay", options.delays,
            "NAME:PERCENT: that process is stopped for so much of the time; may be repeated")
        .repeated();
    command
        .add_option("--logprobs", options.logprobs,
                    "also compare the log probabilities of answers and prompts, with so many of "
                    "the most probable tokens")
        .check(whole_number(0, kTopScoresMax));
    command.add_option("--json", options.json_file, "write everything to FILE, as JSON");
    command.add_option("--log", options.log_file, "write what all stages log to FILE");
    command.add_flag("-v,--verbose", options.verbose, "show the same lines on standard error");
}

/// The file or the method; read once, it may be a pipe.
Result<ConfigSource> source_of(const CheckOptions& options) {
    if (options.config_file.empty() && options.method.empty())
        return Error{Errc::BadArgument, "nothing to check: give --config or --method"};
    return config_source(options.config_file, options.method);
}

/// With what --set changes in its text; `layers` of the model, nothing while it is unknown.
Result<PipelineConfig> config_of(const CheckOptions& options,
                                 const ConfigSource& source,
                                 std::optional<int> layers) {
    std::vector<Setting> settings;
    for (const std::string& word : options.settings) {
        Result<Setting> setting = parse_setting(word, "--set");
        if (!setting) return setting.error();
        if (setting.value().key == kDraftCost)
            return Error{Errc::BadArgument,
                         "--set " + word + ": only paceline simulate can choose what a pass costs"};
        settings.push_back(std::move(setting).value());
    }
    Result<Variant> variant = apply_settings(source, settings, {}, layers);
    if (!variant) return variant.error();
    Result<PipelineConfig> config{std::move(variant.value().config)};
    if (const Device device = device_of(options.model); device.gpu) {
        if (!options.config_file.empty()) return Error{Errc::BadArgument, kDeviceIsInTheFile};
        if (Status s = use_device(config.value(), device); !s) return s.error();
    }
    if (options.draft_model.empty()) return config;
    if (Status s = use_draft_model(config.value(), options.draft_model); !s) return s.error();
    return config;
}

/// What the command line says of the task without a model.
Result<CheckTask> task_of(const CheckOptions& options) {
    CheckTask task;
    Result<std::vector<Prompt>> prompts = chosen_prompts(options.prompts_file, options.prompts_max);
    if (!prompts) return prompts.error();
    task.prompts = std::move(prompts).value();
    task.request.max_tokens = options.max_tokens;
    if (options.logprobs >= 0)
        task.request.scores = {.answer = true, .prompt = true, .top = options.logprobs};
    task.at_once = options.at_once;
    task.kv_memory = options.kv_memory;
    task.faults.kills = options.kills;
    task.faults.stalls = options.stalls;
    task.faults.seed = options.sampling.params.seed;
    for (const std::string& word : options.delays) {
        Result<SlowStage> slow = parse_slow_stage(word);
        if (!slow) return slow.error();
        task.faults.slow.push_back(std::move(slow).value());
    }
    return task;
}

Status add_model(CheckTask& task, const CheckOptions& options, const OpenedModel& model) {
    Result<SamplingParams> sampling =
        sampling_params(options.sampling, model.file.config().vocab_size);
    if (!sampling) return sampling.error();
    task.request.sampling = std::move(sampling).value();
    task.request.end_tokens = model.tokenizer.end_tokens();
    Result<GrammarSpec> grammar = read_grammar(options.grammar);
    if (!grammar) return grammar.error();
    return use_grammar(std::move(grammar).value(), model, task.request);
}

Result<bool> check_all(const CheckOptions& options, const Environment& environment) {
    std::optional<OutputFile> json_file;
    if (Status named = open_if_named(options.json_file, "--json", json_file); !named)
        return named.error();
    Result<CheckTask> task = task_of(options);
    if (!task) return task.error();
    const Result<ConfigSource> source = source_of(options);
    if (!source) return source.error();
    if (const Result<PipelineConfig> known = config_of(options, source.value(), {}); !known)
        return known.error();
    Result<RunLog> log = RunLog::open(options.log_file, options.verbose);
    if (!log) return log.error();
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    Result<PipelineConfig> config =
        config_of(options, source.value(), model.value().file.config().layers);
    if (!config) return config.error();
    const PartsSearch search = parts_search(options.model.parts, environment);
    Result<ResolvedConfig> pipeline =
        use_parts(std::move(config).value(), search, model.value().file);
    if (!pipeline) return pipeline.error();
    if (Status s = keep_draft_copy(pipeline.value(), model.value().file, options.model, environment,
                                   {.bars = bars_on(environment)});
        !s)
        return s.error();
    for (const std::string& why : pipeline.value().parts.omitted)
        std::fprintf(stderr, "paceline check: left out: %s\n", visible(why, 500).c_str());
    if (const std::string warning =
            threads_warning(options.model.threads, device_of(options.model));
        !warning.empty())
        std::fprintf(stderr, "paceline check: %s\n", warning.c_str());
    if (Status s = add_model(task.value(), options, model.value()); !s) return s.error();
    Result<CheckResult> result = check_pipeline(model.value(), options.model, pipeline.value(),
                                                task.value(), environment, log.value());
    if (!result) return result.error();
    std::fputs(check_table(result.value(), task.value()).c_str(), stdout);
    if (json_file) {
        const std::string json = json_text(to_json(result.value(), task.value()), 1);
        if (Status s = json_file->write(json + "\n"); !s) return s.error();
    }
    if (Status s = log.value().written(); !s) return s.error();
    return result.value().all_equal();
}

}  // namespace

Command add_check(Command& app, CheckOptions& options) {
    Command command = app.add_command(kCheckCommand,
                                      "Compare a pipeline with plain decoding on a set of prompts");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    refuse_exact_option(command);
    refuse_random_option(command);
    add_parts_option(command, options.model);
    add_what(command, options);
    add_faults(command, options);
    add_sampling_options(command, options.sampling);
    add_grammar_options(command, options.grammar);
    command.footer(kCheckFooter);
    return command;
}

int run_check(const CheckOptions& options, const Environment& environment) {
    const Result<bool> equal = check_all(options, environment);
    if (!equal) return report(kCheckCommand, equal.error());
    return equal.value() ? kExitOk : kExitFailure;
}

}  // namespace paceline
