#include "launch/plan/plan.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/core.h>

#include "launch/base/exit_codes.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/base/report.hpp"
#include "launch/config/config_text.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/placement/method_fit.hpp"
#include "launch/plan/auto_choice.hpp"
#include "launch/plan/method_record.hpp"
#include "launch/plan/method_trial.hpp"
#include "launch/plan/plan_table.hpp"
#include "launch/plan/prediction.hpp"
#include "launch/session/pipeline_start.hpp"
#include "launch/simulate/measure_costs.hpp"

namespace paceline {
namespace {

constexpr const char* kPlanCommand = "plan";
// Of shipped drafts and exits on prompts that they were not trained on (docs/trained-parts.md).
constexpr double kDraftPrior = 0.6;
constexpr double kExitPrior = 0.5;

constexpr const char* kPlanFooter =
    R"(Costs are measured in a few seconds, every method that fits is predicted from them, and the
best are tried: prompts decoded plainly and by the method. What trials show is what
`--method auto` of `paceline run` goes by; the predictions are not remembered. Examples:
  paceline plan
  paceline plan -m model.gguf --prompts questions.jsonl --trials 8 -o best.toml
  paceline plan -m model.gguf --trials 0)";

/// The model, and what all methods of this command have in common.
struct Planned {
    OpenedModel model;
    Machine machine;
    PartsSearch parts;
    std::vector<PlannedMethod> methods;
};

/// Errors: why this method cannot decode the model here.
Result<ResolvedConfig> resolve(std::string_view method,
                               const PlanOptions& options,
                               const Planned& planned,
                               const Environment& environment) {
    Result<PipelineConfig> config = method_config(method);
    if (!config) return config.error();
    if (!options.draft_model.empty() && config.value().draft && config.value().draft->computes()) {
        if (Status s = use_draft_model(config.value(), options.draft_model); !s) return s.error();
    }
    const ModelFile& file = planned.model.file;
    Result<ResolvedConfig> pipeline = use_parts(std::move(config).value(), planned.parts, file);
    if (!pipeline) return pipeline.error();
    if (Status s = keep_draft_copy(pipeline.value(), file, options.model, environment,
                                   {.bars = Show::No, .remarks = false});
        !s)
        return s.error();
    return pipeline;
}

/// Memory, parts and whether it can be started at all.
PlannedMethod fit_of(const Method& method,
                     const PlanOptions& options,
                     const Planned& planned,
                     const Environment& environment) {
    PlannedMethod found{.name = std::string{method.name}};
    const Result<ResolvedConfig> pipeline = resolve(method.name, options, planned, environment);
    if (!pipeline) {
        found.refusal = pipeline.error().what;
        return found;
    }
    const Result<PipelinePlan> plan =
        plan_pipeline(planned.model.file, options.model, pipeline.value(), {});
    if (!plan) {
        found.refusal = plan.error().what;
        return found;
    }
    for (const MemoryNeed& need : plan.value().needs) found.memory_bytes += need.on_host();
    found.processes = static_cast<int>(plan.value().placement.processes.size());
    if (parts_use(pipeline.value(), plan.value().placement) == PartsUse::StandIns)
        found.notes.emplace_back("without trained parts for this model");
    const std::optional<DraftConfig>& draft = pipeline.value().config.draft;
    found.guarded = !draft || !draft->observes();
    const Result<PipelineConfig> asked = method_config(method.name);
    found.lacks_part = !asked || lacks_own_part(asked.value(), pipeline.value().parts);
    found.unverified = pipeline.value().config.acceptance != AcceptanceRule::Coupled;
    return found;
}

/// The measurements that all predictions are fed with: full depth, few rows, one context; all cores
/// for processes that take turns, one core beside a busy one for those that do not.
Result<CostTable> quick_costs(const PlanOptions& options,
                              const Planned& planned,
                              const Environment& environment) {
    CostPlan plan{.rows = {1, 2, 4, 8},
                  .contexts = {256},
                  .depths = {planned.model.file.config().layers},
                  .samples = 3,
                  .sample_seconds = 0.003};
    std::vector<std::string> paths;
    if (!options.draft_model.empty()) paths.push_back(options.draft_model);
    const Result<std::vector<ModelFile>> drafts =
        open_drafts(paths, options.model, environment, kPlanCommand);
    if (!drafts) return drafts.error();
    ModelOptions model = options.model;
    model.context = std::max(model.context, 512);
    const auto cores = static_cast<int>(usable_cores(planned.machine, options.model).size());
    std::vector<std::pair<int, int>> shares{{cores, 0}};
    if (cores > 1) shares.emplace_back(1, 1);
    std::vector<CostRecord> records;
    for (const auto& [threads, neighbours] : shares) {
        plan.threads = {threads};
        plan.neighbours = {neighbours};
        const Result<MeasuredCosts> costs =
            measure_model(planned.model.file, drafts.value(), planned.parts, model, plan,
                          planned.machine, [](const std::string&) {});
        if (!costs) return costs.error();
        records.insert(records.end(), costs.value().records.begin(), costs.value().records.end());
    }
    return CostTable::of(std::move(records));
}

/// Plain decoding, which the others are compared with; nullptr: it is not among them.
PlannedMethod* plain_of(Planned& planned) {
    const auto plain = std::find_if(planned.methods.begin(), planned.methods.end(),
                                    [](const auto& m) { return m.name == kPlainPipeline; });
    return plain != planned.methods.end() ? &*plain : nullptr;
}

void predict_all(const PredictionInputs& inputs,
                 const PlanOptions& options,
                 Planned& planned,
                 const Environment& environment) {
    for (PlannedMethod& method : planned.methods) {
        if (!method.refusal.empty()) continue;
        const Result<ResolvedConfig> pipeline = resolve(method.name, options, planned, environment);
        if (!pipeline) continue;
        const Result<Prediction> predicted = predict_method(inputs, pipeline.value());
        if (!predicted) {
            method.notes.push_back("not predicted: " + predicted.error().what);
            continue;
        }
        method.predicted = predicted.value().tokens_per_second;
        if (!predicted.value().note.empty()) method.notes.push_back(predicted.value().note);
    }
    const PlannedMethod* const plain = plain_of(planned);
    const double rate = plain != nullptr ? plain->predicted : 0.0;
    for (PlannedMethod& method : planned.methods)
        method.predicted_gain = rate > 0.0 ? method.predicted / rate : 0.0;
}

/// It can decode the model here, exactly and with the part that it is made for, and what it can
/// lose is bounded.
bool suits_auto(const PlannedMethod& method) {
    return method.refusal.empty() && !method.unverified && method.guarded && !method.lacks_part;
}

std::vector<std::string> names_of(const Planned& planned) {
    std::vector<std::string> names;
    for (const PlannedMethod& method : planned.methods) {
        if (suits_auto(method)) names.push_back(method.name);
    }
    return names;
}

/// Those to try: plain decoding in a stage, which runs of other methods are compared with, the
/// method that `auto` begins with, then the best predictions, `trials` of them.
std::vector<PlannedMethod*> to_try(Planned& planned, int trials, std::size_t cores) {
    const std::string first =
        choose_method({}, cores, names_of(planned), kPlainMethod).method;  // of an empty record
    std::vector<PlannedMethod*> chosen;
    for (PlannedMethod& method : planned.methods) {
        const bool speculates = !method.name.starts_with(kPlainPipeline);
        if (speculates && suits_auto(method)) chosen.push_back(&method);
    }
    std::stable_sort(chosen.begin(), chosen.end(), [&](const auto* a, const auto* b) {
        if ((a->name == first) != (b->name == first)) return a->name == first;
        return a->predicted_gain > b->predicted_gain;
    });
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(trials)));
    PlannedMethod* const plain = plain_of(planned);
    const bool any = !chosen.empty() && plain != nullptr && plain->refusal.empty();
    if (any) chosen.insert(chosen.begin(), plain);
    return chosen;
}

Result<CheckTask> task_of(const PlanOptions& options, const Planned& planned) {
    Result<std::vector<Prompt>> prompts = chosen_prompts(options.prompts_file, options.prompts);
    if (!prompts) return prompts.error();
    CheckTask task;
    task.prompts = std::move(prompts).value();
    task.remarks = false;
    task.request.max_tokens = options.max_tokens;
    task.request.end_tokens = planned.model.tokenizer.end_tokens();
    return task;
}

Status try_best(const PlanOptions& options,
                const CheckTask& task,
                Planned& planned,
                MethodRecord& record,
                const Environment& environment) {
    const std::size_t cores = usable_cores(planned.machine, options.model).size();
    for (PlannedMethod* method : to_try(planned, options.trials, cores)) {
        std::fprintf(stderr, "trying %s ...\n", method->name.c_str());
        const Result<ResolvedConfig> pipeline =
            resolve(method->name, options, planned, environment);
        if (!pipeline) return pipeline.error();
        const Result<MethodRate> rate =
            try_method(planned.model, options.model, pipeline.value(), task, environment);
        if (!rate && rate.error().code == Errc::Protocol) return rate.error();
        if (!rate) {
            method->notes.push_back("trial failed: " + rate.error().what);
            continue;
        }
        method->measured = rate.value();
        record.add(method->name, rate.value());
    }
    return {};
}

/// How often drafts are right here: as asked for, as runs have shown, or a prior.
double draft_accuracy(const PlanOptions& options, const MethodRecord& record, std::string& source) {
    source = "as asked for";
    if (options.acceptance) return *options.acceptance;
    double sum = 0.0;
    int count = 0;
    for (const auto& [name, rate] : record.methods) {
        if (rate.acceptance <= 0.0) continue;
        sum += rate.acceptance;
        ++count;
    }
    source = count > 0 ? "earlier runs here" : "assumed; a trial measures it";
    return count > 0 ? sum / count : kDraftPrior;
}

Status plan_methods(const PlanOptions& options, const Environment& environment) {
    std::optional<OutputFile> out;
    if (Status named = open_if_named(options.out, "--out", out); !named) return named;
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    Planned planned{std::move(model).value(),
                    std::move(machine).value(),
                    parts_search(options.model.parts, environment),
                    {}};
    const Result<CheckTask> task = task_of(options, planned);
    if (!task) return task.error();
    for (const Method& method : methods())
        planned.methods.push_back(fit_of(method, options, planned, environment));

    const std::vector<int> cores = usable_cores(planned.machine, options.model);
    const MethodRecords records{options.model.no_cache ? "" : environment.cache_folder};
    const std::string key =
        record_key(planned.model.file, options.model, options.draft_model, cores.size());
    MethodRecord record = records.read(key);
    const auto begin = std::chrono::steady_clock::now();
    const Result<CostTable> costs = quick_costs(options, planned, environment);
    if (!costs) return costs.error();
    PlanHead head{
        .model = planned.model.file.path(),
        .cores = cores.size(),
        .cost_seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    head.acceptance = draft_accuracy(options, record, head.acceptance_source);
    predict_all({.file = planned.model.file,
                 .model = options.model,
                 .costs = costs.value(),
                 .cores = cores,
                 .accuracy = {.draft = head.acceptance,
                              .exit = options.exit_accuracy.value_or(kExitPrior)}},
                options, planned, environment);
    if (Status s = try_best(options, task.value(), planned, record, environment); !s) return s;
    if (options.trials > 0) (void)records.write(key, record);

    const AutoChoice choice = choose_method(record, cores.size(), names_of(planned), kPlainMethod);
    std::fputs(plan_table(head, planned.methods, choice).c_str(), stdout);
    if (!out) return {};
    const Result<ConfigSource> source = config_source("", choice.method);
    if (!source) return source.error();
    const Result<std::string> text = config_text(source.value());
    if (!text) return text.error();
    if (!options.draft_model.empty())
        fmt::print("{} names no draft model: run it with --draft-model {}\n", options.out,
                   options.draft_model);
    return out->write(text.value());
}

}  // namespace

Command add_plan(Command& app, PlanOptions& options) {
    Command command =
        app.add_command(kPlanCommand, "Which method decodes a model fastest on this machine");
    add_model_options(command, options.model);
    refuse_random_option(command);
    add_parts_option(command, options.model);
    command.add_option("--draft-model", options.draft_model,
                       "draft model of the methods that draft with one, a GGUF file or a folder");
    add_prompt_set_options(command, options.prompts_file, options.prompts, options.max_tokens,
                           {.first_min = 1, .tokens_min = 16});
    command.add_option(
        "--trials", options.trials,
        "so many methods are tried, and plain decoding in a stage; 0: predictions only",
        whole_number(0, 64));
    command
        .add_option("--acceptance", options.acceptance,
                    "how often a draft's candidate is right, for the predictions (default: as in "
                    "earlier runs here)")
        .check(number_between(0, 1));
    command
        .add_option("--exit-accuracy", options.exit_accuracy,
                    "how often an exit's head is right (default: 0.5)")
        .check(number_between(0, 1));
    command.add_option("-o,--out", options.out,
                       "write the chosen method's configuration to FILE, for --config");
    command.footer(kPlanFooter);
    return command;
}

int run_plan(const PlanOptions& options, const Environment& environment) {
    const Status done = plan_methods(options, environment);
    return done.ok() ? kExitOk : report(kPlanCommand, done.error());
}

}  // namespace paceline
