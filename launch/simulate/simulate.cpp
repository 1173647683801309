#include "launch/simulate/simulate.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>

#include "ipc/base/limits.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_input.hpp"
#include "launch/base/text_output.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/session/answer_compare.hpp"
#include "launch/simulate/measure_costs.hpp"
#include "launch/simulate/oracle_backend.hpp"
#include "launch/simulate/report.hpp"
#include "launch/simulate/settings.hpp"
#include "launch/simulate/world.hpp"

namespace paceline {
namespace {

constexpr const char* kSimulateCommand = "simulate";

constexpr const char* kSimulateFooter =
    R"(Every process of the configuration is a device of its own; the text is that of the real
model, or of an oracle for a shape (--random, --acceptance); the time is simulated. Examples:
  paceline simulate --measure-costs costs.tsv --short-lists 0,4096
  paceline simulate --measure-costs 1b.tsv --random llama-1b
  paceline simulate --method pearl --costs h100.tsv --random llama-8b --draft-model llama-1b \
      --dtype bf16 --acceptance 0.8
  paceline simulate --method pearl --costs costs.tsv -p "Why is the sky blue?" -n 64
  paceline simulate --method fold --costs costs.tsv --prompts questions.jsonl --check \
      --sweep draft-cost=0.05,0.1,0.2 --sweep draft.exit_alternatives=1,4,6 --json sweep.json)";

void add_run_options(Command& command, SimulateOptions& options) {
    command.add_option("--config", options.config_file, "pipeline of processes (configs/*.toml)");
    command
        .add_option("--method", options.method,
                    "one of paceline run --list-methods; plain is one device with the whole model")
        .excludes("--config");
    command.add_option(
        "--draft-model", options.draft_model,
        "model that drafts, instead of the configuration's: a GGUF file, a Hugging Face folder "
        "or OWNER/NAME");
    command.add_option("--costs", options.costs_file, "cost table that feeds the clock");
    add_prompt_set_options(command, options.prompts_file, options.prompts_max, options.max_tokens);
    command.add_option("-p,--prompt", options.prompt, "the prompt").excludes("--prompts");
    command.add_option("--requests", options.at_once, "answers decoded at the same time",
                       whole_number(1, kRequestsMax));
    command.add_option("--device-threads", options.device_threads,
                       "a device costs what the table measured with so many threads",
                       whole_number(1, 1024));
    command.add_option("--busy-neighbours", options.busy_neighbours,
                       "and with so many processes computing beside it", whole_number(0, 1024));
    command
        .add_option("--shared-device", options.shared_devices,
                    "processes that share one device, such as draft,target: their jobs slow each "
                    "other while they overlap; all: every one; may be repeated")
        .repeated();
    command
        .add_option("--hop-us", options.hop_micros,
                    "microseconds of a message between devices, instead of the table's; 0: free")
        .check(number_between(0, 1e9));
    command
        .add_option("--set", options.settings,
                    "change the configuration: SECTION.KEY=VALUE, exit-layer=N, draft-cost=X (a "
                    "pass of the draft in parts of one of the target); may be repeated")
        .repeated();
    command
        .add_option("--sweep", options.sweeps,
                    "the same with several values, KEY=V1,V2,...: a run for each; may be repeated")
        .repeated();
    command.add_flag("--check", options.check,
                     "compare every answer with plain decoding; exit code 1 if one differs");
    command.add_flag("--baseline", options.baseline,
                     "simulate plain decoding on one of the devices too, and compare the speed");
    command.add_option("--trace", options.trace_file,
                       "write the simulated time line of the last run, for ui.perfetto.dev");
    command.add_option("--json", options.json_file, "write everything to FILE, as JSON");
}

void add_oracle_options(Command& command, SimulateOptions& options) {
    command
        .add_option(
            "--acceptance", options.acceptance,
            "with --random: how often the draft's first choice is right; nothing is computed")
        .check(number_between(0, 1))
        .needs("--random");
    command
        .add_option("--exit-accuracy", options.exit_accuracy,
                    "and how often that of an exit's head is (default: as the draft's)")
        .check(number_between(0, 1))
        .needs("--acceptance");
    command
        .add_option("--draft-reliability", options.reliability,
                    "and how often a draft's probability is high (0.95) where it is right and low "
                    "(0.4) where it is wrong (default: it is calibrated)")
        .check(number_between(0, 1))
        .needs("--acceptance");
    command
        .add_option("--overconfidence", options.overconfidence,
                    "and the exponent by which drafts and exits are too sure: p^(1/X) is said "
                    "where they are right with probability p; 1: calibrated")
        .check(number_between(1, 100))
        .needs("--acceptance")
        .excludes("--draft-reliability")
        .show_default();
    command
        .add_option("--bad-share", options.bad_phases.share,
                    "and the part of the text in which they are right less often, and do not know")
        .check(number_between(0, 0.99))
        .needs("--acceptance")
        .show_default();
    command
        .add_option("--bad-length", options.bad_phases.length,
                    "and the mean length of such a phase, in tokens")
        .check(number_between(1, 1e6))
        .needs("--bad-share")
        .show_default();
    command
        .add_option("--bad-accuracy", options.bad_phases.accuracy,
                    "and how many times as often they are right in one as otherwise")
        .check(number_between(0, 1))
        .needs("--bad-share")
        .show_default();
    command.add_option("--prompt-tokens", options.prompt_tokens, "and the length of each prompt",
                       whole_number(1, 100'000));
}

Result<std::vector<Prompt>> prompts_of(const SimulateOptions& options) {
    if (options.prompt) return std::vector<Prompt>{{"prompt", *options.prompt}};
    return chosen_prompts(options.prompts_file, options.prompts_max);
}

/// --set and --sweep: a list of settings for each run. Refused here for what needs no model.
Result<std::vector<std::vector<Setting>>> variants_of(const SimulateOptions& options,
                                                      const ConfigSource& source) {
    std::vector<std::vector<Setting>> sweeps;
    for (const std::string& word : options.settings) {
        Result<Setting> setting = parse_setting(word, "--set");
        if (!setting) return setting.error();
        sweeps.push_back({std::move(setting).value()});
    }
    for (const std::string& word : options.sweeps) {
        Result<std::vector<Setting>> sweep = parse_sweep(word);
        if (!sweep) return sweep.error();
        sweeps.push_back(std::move(sweep).value());
    }
    std::vector<std::vector<Setting>> variants = combinations(sweeps);
    for (const std::vector<Setting>& settings : variants) {
        const Result<Variant> variant = apply_settings(source, settings, {}, std::nullopt);
        if (!variant) return variant.error();
    }
    return variants;
}

/// Everything that all runs of one command have in common.
struct Common {
    ModelFile file;
    CostTable costs;
    std::vector<Prompt> prompts;
    SimulateTask task;
    std::vector<std::vector<Setting>> variants;
    StageTimingOptions timing;
    PartsSearch parts;
    Environment environment;
    std::vector<Answer> plain;  // empty: nothing is compared
};

/// The model, what it is asked, and how an answer is made.
struct Asked {
    ModelFile file;
    std::vector<Prompt> prompts;
    SimulateTask task;
};

/// A model that is computed, and its text.
Result<Asked> ask_model(const SimulateOptions& options, const Environment& environment) {
    Result<std::vector<Prompt>> prompts = prompts_of(options);
    if (!prompts) return prompts.error();
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    const ModelFile& file = model.value().file;
    print_rounded_types(kSimulateCommand, file, options.model);
    Result<SamplingParams> sampling = sampling_params(options.sampling, file.config().vocab_size);
    if (!sampling) return sampling.error();
    Result<std::vector<std::vector<TokenId>>> encoded =
        encode_prompts(prompts.value(), file, model.value().tokenizer);
    if (!encoded) return encoded.error();
    SimulateTask task{.prompts = std::move(encoded).value(),
                      .request = {.sampling = std::move(sampling).value(),
                                  .end_tokens = model.value().tokenizer.end_tokens()}};
    return Asked{std::move(model.value().file), std::move(prompts).value(), std::move(task)};
}

/// A shape, whose text is an oracle's (oracle_backend.hpp). Any tokens are a prompt.
Result<Asked> ask_oracle(const SimulateOptions& options, const Environment& environment) {
    if (!options.acceptance)
        return Error{Errc::BadArgument,
                     "--random " + options.model.random +
                         " has no text: --acceptance says how often a draft is right, "
                         "--measure-costs measures the shape"};
    if (options.prompt || !options.prompts_file.empty())
        return Error{Errc::BadArgument,
                     "a shape (--random) has no tokenizer: --prompt and --prompts are for models"};
    if (!options.bad_phases.possible())
        return Error{Errc::BadArgument,
                     "--bad-length: bad phases that short are more of the text than --bad-share"};
    Result<ModelFile> file = open_model_file(options.model, environment);
    if (!file) return file.error();
    const int vocab_size = file.value().config().vocab_size;
    Result<SamplingParams> sampling = sampling_params(options.sampling, vocab_size);
    if (!sampling) return sampling.error();
    constexpr int kPrompts = 4;
    const int count = options.prompts_max > 0 ? options.prompts_max : kPrompts;
    SimulateTask task{.prompts = {}, .request = {.sampling = std::move(sampling).value()}};
    Asked asked{std::move(file).value(), {}, std::move(task)};
    for (int i = 0; i < count; ++i) {
        asked.prompts.push_back({fmt::format("{}", i + 1), ""});
        std::vector<TokenId> tokens;
        TokenId token = i % vocab_size;
        for (Position position = 0; position < options.prompt_tokens; ++position)
            tokens.push_back(token = oracle_next(token, position, vocab_size));
        asked.task.prompts.push_back(std::move(tokens));
    }
    asked.task.oracle = {.draft = *options.acceptance,
                         .exit = options.exit_accuracy.value_or(*options.acceptance),
                         .reliability = options.reliability,
                         .overconfidence = options.overconfidence};
    if (options.bad_phases.share > 0.0) asked.task.oracle->bad_phases = options.bad_phases;
    return asked;
}

/// Those between commas.
std::vector<std::string> words_of(const std::string& names) {
    std::vector<std::string> words{""};
    for (const char letter : names) {
        if (letter == ',') {
            words.emplace_back();
        } else {
            words.back() += letter;
        }
    }
    return words;
}

Result<Common> prepare(const SimulateOptions& options,
                       const ConfigSource& source,
                       const Environment& environment) {
    if (options.costs_file.empty())
        return Error{Errc::BadArgument, "--costs FILE is missing; --measure-costs writes one"};
    const Result<std::string> table = read_file(options.costs_file, kRecordBytesMax);
    if (!table) return table.error();
    Result<CostTable> costs = CostTable::parse(table.value(), options.costs_file);
    if (!costs) return costs.error();
    Result<std::vector<std::vector<Setting>>> variants = variants_of(options, source);
    if (!variants) return variants.error();
    Result<Asked> asked = options.model.random.empty() ? ask_model(options, environment)
                                                       : ask_oracle(options, environment);
    if (!asked) return asked.error();
    SimulateTask& task = asked.value().task;
    task.request.max_tokens = options.max_tokens;
    task.at_once = options.at_once;
    task.trace = !options.trace_file.empty();
    for (const std::string& names : options.shared_devices)
        task.shared_devices.push_back(words_of(names));
    StageTimingOptions timing;
    timing.threads = static_cast<std::uint32_t>(options.device_threads);
    timing.neighbours = static_cast<std::uint32_t>(options.busy_neighbours);
    if (options.hop_micros) timing.hop_seconds = *options.hop_micros / 1e6;
    return Common{std::move(asked.value().file),
                  std::move(costs).value(),
                  std::move(asked.value().prompts),
                  std::move(task),
                  std::move(variants).value(),
                  timing,
                  parts_search(options.model.parts, environment),
                  environment,
                  {}};
}

Result<SimulatedCase> run_variant(const SimulateOptions& options,
                                  const Common& common,
                                  const ConfigSource& source,
                                  const std::vector<Setting>& settings,
                                  std::string& trace) {
    Result<Variant> variant =
        apply_settings(source, settings, common.timing, common.file.config().layers);
    if (!variant) return variant.error();
    PipelineConfig config = std::move(variant.value().config);
    if (!options.draft_model.empty()) {
        if (Status s = use_draft_model(config, options.draft_model); !s) return s.error();
    }
    Result<ResolvedConfig> pipeline = use_parts(std::move(config), common.parts, common.file);
    if (!pipeline) return pipeline.error();
    if (Status s = keep_draft_copy(pipeline.value(), common.file, options.model, common.environment,
                                   {.bars = bars_on(common.environment)});
        !s)
        return s.error();
    if (options.check && pipeline.value().config.acceptance == AcceptanceRule::Rejection) {
        return Error{Errc::BadArgument,
                     "--check compares texts; rule = \"rejection\" keeps their "
                     "distribution only"};
    }
    Result<SimulatedRun> run = simulate(common.file, options.model, pipeline.value(), common.costs,
                                        options.costs_file, variant.value().timing, common.task);
    if (!run) return run.error();
    trace = std::move(run.value().trace);
    // `plain` is the pipeline of one process, under the name that it was asked for.
    return SimulatedCase{
        settings, std::move(run).value(),
        options.method == kPlainMethod ? kPlainMethod : pipeline.value().config.name};
}

/// Tokens/s of plain decoding: one device with the whole model, and its messages are free.
Result<double> plain_rate(const SimulateOptions& options, const Common& common) {
    const Result<PipelineConfig> config = method_config(kPlainMethod);
    if (!config) return config.error();
    StageTimingOptions timing = common.timing;
    timing.hop_seconds = 0.0;
    const Result<SimulatedRun> run =
        simulate(common.file, options.model, {config.value()}, common.costs, options.costs_file,
                 timing, common.task);
    if (!run) return run.error();
    return run.value().stats.rate;
}

Result<bool> simulate_all(const SimulateOptions& options, const Environment& environment) {
    if (!options.model.random.empty() && options.check)
        return Error{Errc::BadArgument,
                     "--check computes the text: it is for models, not --random"};
    if (options.config_file.empty() && options.method.empty())
        return Error{Errc::BadArgument, "nothing to simulate: give --config or --method"};
    Result<ConfigSource> source = config_source(options.config_file, options.method);
    if (!source) return source.error();
    std::optional<OutputFile> trace_file;
    std::optional<OutputFile> json_file;
    if (Status named = open_if_named(options.trace_file, "--trace", trace_file); !named)
        return named.error();
    if (Status named = open_if_named(options.json_file, "--json", json_file); !named)
        return named.error();
    Result<Common> common = prepare(options, source.value(), environment);
    if (!common) return common.error();
    const SimulateTask& task = common.value().task;
    if (options.check) {
        Result<std::vector<Answer>> plain = decode_plainly(common.value().file, options.model,
                                                           environment, task.prompts, task.request);
        if (!plain) return plain.error();
        common.value().plain = std::move(plain).value();
    }
    SimulateReport report{common.value().prompts, common.value().plain};
    if (options.baseline) {
        const Result<double> rate = plain_rate(options, common.value());
        if (!rate) return rate.error();
        report.set_baseline(rate.value());
    }
    std::string trace;
    for (const std::vector<Setting>& settings : common.value().variants) {
        Result<SimulatedCase> made =
            run_variant(options, common.value(), source.value(), settings, trace);
        if (!made) return made.error();
        report.add(std::move(made).value());
        std::fputs(report.last_text().c_str(), stdout);
        if (Status s = flush_stdout(); !s) return s.error();
    }
    if (common.value().variants.size() > 1) std::fputs(report.sweep_table().c_str(), stdout);
    if (trace_file) {
        if (Status s = trace_file->write(trace); !s) return s.error();
    }
    if (json_file) {
        if (Status s = json_file->write(report.json_text()); !s) return s.error();
    }
    return report.all_equal();
}

}  // namespace

Command add_simulate(Command& app, SimulateOptions& options) {
    Command command = app.add_command(
        kSimulateCommand, "Run a pipeline on simulated devices, with the real model's text");
    add_model_options(command, options.model);
    add_random_options(command, options.model);
    add_parts_option(command, options.model);
    add_run_options(command, options);
    add_oracle_options(command, options);
    add_measure_options(command, options);
    add_sampling_options(command, options.sampling);
    command.footer(kSimulateFooter);
    return command;
}

int run_simulate(const SimulateOptions& options, const Environment& environment) {
    if (!options.measure_file.empty()) {
        const Status measured = measure_costs_file(options, environment);
        return measured.ok() ? kExitOk : report(kSimulateCommand, measured.error());
    }
    if (options.model.threads != 0 && !options.check)
        std::fprintf(stderr,
                     "paceline simulate: -t %d changes nothing: only --check decodes on this "
                     "machine; --device-threads says what a device has\n",
                     options.model.threads);
    const Result<bool> equal = simulate_all(options, environment);
    if (!equal) return report(kSimulateCommand, equal.error());
    return equal.value() ? kExitOk : kExitFailure;
}

}  // namespace paceline
