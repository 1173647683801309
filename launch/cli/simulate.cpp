#include "launch/cli/simulate.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>

#include "launch/backend/load_model.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_input.hpp"
#include "launch/config/methods.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/tools/check_compare.hpp"
#include "launch/tools/check_prompts.hpp"
#include "launch/tools/cost_measure.hpp"
#include "launch/tools/cost_names.hpp"
#include "launch/tools/simulate_report.hpp"
#include "launch/tools/simulate_settings.hpp"
#include "launch/tools/simulate_world.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {
namespace {

constexpr const char* kCommand = "simulate";

constexpr const char* kFooter =
    R"(Every process of the configuration is a device of its own; the text is that of the real model,
the time is simulated. Examples:
  paceline simulate --measure-costs costs.tsv --short-lists 0,4096
  paceline simulate --measure-costs 1b.tsv --random llama-1b
  paceline simulate --method pearl --costs costs.tsv -p "Why is the sky blue?" -n 64
  paceline simulate --method fold --costs costs.tsv --prompts questions.jsonl --check \
      --sweep draft-cost=0.05,0.1,0.2 --sweep draft.exit_alternatives=1,4,6 --json sweep.json)";

int report(const Error& error) {
    return error.code == Errc::BadArgument ? report_usage(kCommand, error.what)
                                           : report_failure(kCommand, error);
}

std::vector<int> numbers_of(const std::string& word) {
    return word.empty() ? std::vector<int>{} : parse_int_list(word);
}

void add_run_options(Command& command, SimulateOptions& options) {
    command.add_option("--config", options.config_file, "pipeline of processes (configs/*.toml)");
    command.add_option("--method", options.method, "one of paceline run --list-methods")
        .excludes("--config");
    command.add_option("--draft-model", options.draft_model,
                       "model that drafts, instead of the configuration's");
    command.add_option("--costs", options.costs_file, "cost table that feeds the clock");
    command.add_option("-p,--prompt", options.prompt, "the prompt");
    command
        .add_option("--prompts", options.prompts_file,
                    "prompts, a JSON object per line (default: the built-in sixteen)")
        .excludes("--prompt");
    command.add_option("--first", options.prompts_max, "take only so many of the prompts; 0: all")
        .check(whole_number(0))
        .show_default();
    command.add_option("-n,--n-predict", options.max_tokens, "most tokens of each answer")
        .check(whole_number(1))
        .show_default();
    command.add_option("--requests", options.at_once, "answers decoded at the same time")
        .check(whole_number(1, 256))
        .show_default();
    command
        .add_option("--device-threads", options.device_threads,
                    "a device costs what the table measured with so many threads")
        .check(whole_number(1, 1024))
        .show_default();
    command
        .add_option("--busy-neighbours", options.busy_neighbours,
                    "and with so many processes computing beside it")
        .check(whole_number(0, 1024))
        .show_default();
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
    command.add_option("--trace", options.trace_file,
                       "write the simulated time line of the last run, for ui.perfetto.dev");
    command.add_option("--json", options.json_file, "write everything to FILE, as JSON");
}

void add_measure_options(Command& command, SimulateOptions& options) {
    command.add_option("--measure-costs", options.measure_file,
                       "measure this machine, write a cost table to FILE, and do nothing else");
    command.add_option("--draft-models", options.measure_drafts,
                       "models to measure beside -m, GGUF files");
    const auto list = [&command](const char* name, std::string& value, const char* text, int low) {
        command.add_option(name, value, text).check(whole_number_list(low)).show_default();
    };
    list("--rows", options.rows, "rows of waves, up to 512; more than 64 are prefill", 1);
    list("--contexts", options.contexts, "tokens that they see", 0);
    list("--depths", options.depths, "layers (default: 1,2,4,8, a quarter, half, all)", 1);
    list("--measure-threads", options.threads, "threads (default: 1 and all cores)", 1);
    list("--neighbours", options.neighbours, "processes computing on other cores meanwhile", 0);
    list("--short-lists", options.short_lists, "tokens that a head knows; 0: all", 0);
    command.add_option("--samples", options.samples, "measurements of each, the median counts")
        .check(whole_number(1, 1000))
        .show_default();
}

struct MeasuredDrafts {
    std::vector<ModelFile> files;  // --draft-models
    std::vector<DraftPart> parts;  // trained for the target; they borrow from it
};

/// Also has `plan` measure the short list of the target's trained exits.
Result<MeasuredDrafts> drafts_to_measure(const SimulateOptions& options,
                                         const Environment& environment,
                                         const ModelFile& target,
                                         CostPlan& plan) {
    MeasuredDrafts drafts;
    for (const std::string& path : options.measure_drafts) {
        Result<ModelFile> file = ModelFile::open(path);
        if (!file) return file.error();
        drafts.files.push_back(std::move(file).value());
    }
    Result<FoundParts> found = find_parts(parts_search(options.model.parts, environment), target);
    if (!found) return found.error();
    for (const std::string& path : {found.value().draft_small, found.value().draft_deep}) {
        if (path.empty()) continue;
        Result<DraftPart> part = open_draft_part(path, target);
        if (!part) return part.error();
        drafts.parts.push_back(std::move(part).value());
    }
    if (found.value().heads.empty()) return drafts;
    const Result<HeadsPart> heads = open_heads_part(found.value().heads, target);
    if (!heads) return heads.error();
    const auto tokens = static_cast<int>(heads.value().tokens.size());
    if (std::count(plan.short_lists.begin(), plan.short_lists.end(), tokens) == 0)
        plan.short_lists.push_back(tokens);
    return drafts;
}

Status measure(const SimulateOptions& options, const Environment& environment) {
    Result<OutputFile> output = OutputFile::open(options.measure_file, "--measure-costs");
    if (!output) return output.error();
    const Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    CostPlan plan;
    plan.rows = numbers_of(options.rows);
    plan.contexts = numbers_of(options.contexts);
    plan.depths = numbers_of(options.depths);
    plan.threads = numbers_of(options.threads);
    plan.neighbours = numbers_of(options.neighbours);
    plan.short_lists = numbers_of(options.short_lists);
    plan.samples = options.samples;
    const auto told = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    Result<ModelFile> target = open_model_file(options.model, environment);
    if (!target) return target.error();
    Result<MeasuredDrafts> drafts = drafts_to_measure(options, environment, target.value(), plan);
    if (!drafts) return drafts.error();
    Result<std::vector<CostRecord>> records = measure_hops(target.value().config().dim, plan);
    if (!records) return records.error();
    std::vector<std::string> remarks{
        fmt::format("Measured by paceline simulate --measure-costs; medians of {}.", plan.samples)};
    const auto add = [&](const ModelFile& file, const CostPlan& for_it) -> Status {
        Result<std::vector<CostRecord>> measured =
            measure_costs(file, options.model, for_it, machine.value(), told);
        if (!measured) return measured.error();
        remarks.push_back(cost_name(file.path(), options.model.dtype, 0) + " is " + file.path());
        records.value().insert(records.value().end(), measured.value().begin(),
                               measured.value().end());
        return {};
    };
    if (Status s = add(target.value(), plan); !s) return s;
    plan.depths.clear();
    for (const ModelFile& file : drafts.value().files) {
        if (Status s = add(file, plan); !s) return s;
    }
    for (const DraftPart& part : drafts.value().parts) {
        CostPlan for_it = plan;
        for_it.depths = {part.file.config().layers};
        for_it.short_lists = {static_cast<int>(part.tokens.size())};
        if (Status s = add(part.file, for_it); !s) return s;
    }
    return output.value().write(cost_table_text(records.value(), remarks));
}

Result<std::vector<Prompt>> prompts_of(const SimulateOptions& options) {
    if (options.prompt) return std::vector<Prompt>{{"prompt", *options.prompt}};
    Result<std::vector<Prompt>> prompts = options.prompts_file.empty()
                                              ? Result<std::vector<Prompt>>{built_in_prompts()}
                                              : read_prompts(options.prompts_file);
    if (!prompts) return prompts.error();
    const auto most = static_cast<std::size_t>(options.prompts_max);
    if (most > 0 && prompts.value().size() > most) prompts.value().resize(most);
    return prompts;
}

/// Everything that all runs of one command have in common.
struct Common {
    OpenedModel model;
    CostTable costs;
    std::vector<Prompt> prompts;
    SimulateTask task;
    std::vector<std::vector<Setting>> variants;
    StageTimingOptions timing;
    PartsSearch parts;
    std::vector<PlainAnswer> plain;  // empty: nothing is compared
};

Result<Common> prepare(const SimulateOptions& options, const Environment& environment) {
    if (options.costs_file.empty())
        return Error{Errc::BadArgument, "--costs FILE is missing; --measure-costs writes one"};
    Result<CostTable> costs = CostTable::read(options.costs_file);
    if (!costs) return costs.error();
    Result<std::vector<Prompt>> prompts = prompts_of(options);
    if (!prompts) return prompts.error();
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    const ModelFile& file = model.value().file;
    Result<SamplingParams> sampling = sampling_params(options.sampling, file.config().vocab_size);
    if (!sampling) return sampling.error();
    Result<std::vector<std::vector<TokenId>>> encoded =
        encode_prompts(prompts.value(), file, model.value().tokenizer);
    if (!encoded) return encoded.error();
    std::vector<std::vector<Setting>> sweeps;
    for (const std::string& word : options.settings) {
        Result<Setting> setting = parse_setting(word);
        if (!setting) return setting.error();
        sweeps.push_back({std::move(setting).value()});
    }
    for (const std::string& word : options.sweeps) {
        Result<std::vector<Setting>> sweep = parse_sweep(word);
        if (!sweep) return sweep.error();
        sweeps.push_back(std::move(sweep).value());
    }
    SimulateTask task{.prompts = std::move(encoded).value(),
                      .request = {.sampling = std::move(sampling).value(),
                                  .end_tokens = model.value().tokenizer.end_tokens(),
                                  .max_tokens = options.max_tokens},
                      .at_once = options.at_once,
                      .trace = !options.trace_file.empty()};
    StageTimingOptions timing;
    timing.threads = static_cast<std::uint32_t>(options.device_threads);
    timing.neighbours = static_cast<std::uint32_t>(options.busy_neighbours);
    if (options.hop_micros) timing.hop_seconds = *options.hop_micros / 1e6;
    return Common{std::move(model).value(),
                  std::move(costs).value(),
                  std::move(prompts).value(),
                  std::move(task),
                  combinations(sweeps),
                  timing,
                  parts_search(options.model.parts, environment),
                  {}};
}

Result<SimulatedCase> run_variant(const SimulateOptions& options,
                                  const Common& common,
                                  const ConfigSource& source,
                                  const std::vector<Setting>& settings,
                                  std::string& trace) {
    Result<Variant> variant = apply_settings(source.toml, source.file, settings, common.timing,
                                             common.model.file.config().layers);
    if (!variant) return variant.error();
    PipelineConfig& config = variant.value().config;
    if (!options.draft_model.empty()) {
        if (Status s = use_draft_model(config, options.draft_model); !s) return s.error();
    }
    if (Status s = use_parts(config, common.parts, common.model.file); !s) return s.error();
    if (options.check && config.acceptance == AcceptanceRule::Rejection) {
        return Error{Errc::BadArgument,
                     "--check compares texts; rule = \"rejection\" keeps their "
                     "distribution only"};
    }
    Result<SimulatedRun> run = simulate(common.model.file, options.model, config, common.costs,
                                        options.costs_file, variant.value().timing, common.task);
    if (!run) return run.error();
    trace = std::move(run.value().trace);
    return SimulatedCase{settings, std::move(run).value(), config.name};
}

Result<bool> simulate_all(const SimulateOptions& options, const Environment& environment) {
    if (!options.model.random.empty())
        return Error{Errc::BadArgument,
                     "--random " + options.model.random +
                         " is for --measure-costs: the text of a run is that of a real model"};
    if (options.config_file.empty() && options.method.empty())
        return Error{Errc::BadArgument, "nothing to simulate: give --config or --method"};
    Result<ConfigSource> source = config_source(options.config_file, options.method);
    if (!source) return source.error();
    std::optional<OutputFile> trace_file;
    std::optional<OutputFile> json_file;
    if (!options.trace_file.empty()) {
        Result<OutputFile> file = OutputFile::open(options.trace_file, "--trace");
        if (!file) return file.error();
        trace_file = std::move(file).value();
    }
    if (!options.json_file.empty()) {
        Result<OutputFile> file = OutputFile::open(options.json_file, "--json");
        if (!file) return file.error();
        json_file = std::move(file).value();
    }
    Result<Common> common = prepare(options, environment);
    if (!common) return common.error();
    const SimulateTask& task = common.value().task;
    if (options.check) {
        Result<std::vector<PlainAnswer>> plain = decode_plainly(
            common.value().model.file, options.model, environment, task.prompts, task.request);
        if (!plain) return plain.error();
        common.value().plain = std::move(plain).value();
    }
    SimulateReport report{common.value().prompts, common.value().plain};
    std::string trace;
    for (const std::vector<Setting>& settings : common.value().variants) {
        Result<SimulatedCase> made =
            run_variant(options, common.value(), source.value(), settings, trace);
        if (!made) return made.error();
        report.add(std::move(made).value());
        std::fputs(report.last_text().c_str(), stdout);
        std::fflush(stdout);
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
        kCommand, "Run a pipeline on simulated devices, with the real model's text");
    add_model_options(command, options.model);
    add_random_options(command, options.model);
    add_parts_option(command, options.model);
    add_run_options(command, options);
    add_measure_options(command, options);
    add_sampling_options(command, options.sampling);
    command.footer(kFooter);
    return command;
}

int run_simulate(const SimulateOptions& options, const Environment& environment) {
    if (!options.measure_file.empty()) {
        const Status measured = measure(options, environment);
        return measured.ok() ? kExitOk : report(measured.error());
    }
    const Result<bool> equal = simulate_all(options, environment);
    if (!equal) return report(equal.error());
    return equal.value() ? kExitOk : kExitFailure;
}

}  // namespace paceline
