#include "launch/simulate/measure_costs.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>

#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/simulate/cost_measure.hpp"
#include "launch/simulate/cost_names.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {
namespace {

std::vector<int> numbers_of(const std::string& word) {
    return word.empty() ? std::vector<int>{} : parse_int_list(word);
}

/// The trained drafts of the target; they borrow from it. Also has `plan` measure the short list of
/// its trained exits.
Result<std::vector<DraftPart>> parts_of(const ModelFile& target,
                                        const PartsSearch& search,
                                        CostPlan& plan) {
    std::vector<DraftPart> parts;
    const Result<FoundParts> found = find_parts(search, target);
    if (!found) return found.error();
    for (const std::string& path : {found.value().draft_small, found.value().draft_deep}) {
        if (path.empty()) continue;
        Result<DraftPart> part = open_draft_part(path, target);
        if (!part) return part.error();
        parts.push_back(std::move(part).value());
    }
    if (found.value().heads.empty()) return parts;
    const Result<HeadsPart> heads = open_heads_part(found.value().heads, target);
    if (!heads) return heads.error();
    const auto tokens = static_cast<int>(heads.value().tokens.size());
    if (std::count(plan.short_lists.begin(), plan.short_lists.end(), tokens) == 0)
        plan.short_lists.push_back(tokens);
    return parts;
}

}  // namespace

void add_measure_options(Command& command, SimulateOptions& options) {
    command.add_option("--measure-costs", options.measure_file,
                       "measure this machine, write a cost table to FILE, and do nothing else");
    command.add_option(
        "--draft-models", options.measure_drafts,
        "models to measure beside -m: GGUF files, Hugging Face folders or OWNER/NAME");
    const auto list = [&command](const char* name, std::string& value, const char* text, int low) {
        command.add_option(name, value, text, whole_number_list(low));
    };
    list("--rows", options.rows, "rows of batches, up to 512; more than 64 are prefill", 1);
    list("--contexts", options.contexts, "tokens that they see", 0);
    list("--depths", options.depths, "layers (default: 1,2,4,8, a quarter, half, all)", 1);
    list("--measure-threads", options.threads, "threads (default: 1 and all cores)", 1);
    list("--neighbours", options.neighbours, "processes computing on other cores meanwhile", 0);
    list("--short-lists", options.short_lists, "tokens that a head knows; 0: all", 0);
    command.add_option("--samples", options.samples, "measurements of each, the median counts",
                       whole_number(1, 1000));
}

Status measure_costs_file(const SimulateOptions& given, const Environment& environment) {
    SimulateOptions options = given;
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
    // A model may have another rope for longer texts.
    for (const int context : plan.contexts) {
        for (const int rows : plan.rows)
            options.model.context = std::max(options.model.context, context + rows);
    }
    const auto told = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    Result<ModelFile> target = open_model_file(options.model, environment);
    if (!target) return target.error();
    take_packed_copy(target.value(), options.model, environment, {.bars = bars_on(environment)});
    const Result<std::vector<ModelFile>> drafts =
        open_drafts(options.measure_drafts, options.model, environment, "simulate");
    if (!drafts) return drafts.error();
    print_rounded_types("simulate", target.value(), options.model);
    const Result<MeasuredCosts> costs = measure_model(
        target.value(), drafts.value(), parts_search(options.model.parts, environment),
        options.model, plan, machine.value(), told);
    if (!costs) return costs.error();
    std::vector<std::string> remarks{
        fmt::format("Measured by paceline simulate --measure-costs; medians of {}.", plan.samples)};
    remarks.insert(remarks.end(), costs.value().remarks.begin(), costs.value().remarks.end());
    return output.value().write(cost_table_text(costs.value().records, remarks));
}

Result<std::vector<ModelFile>> open_drafts(const std::vector<std::string>& paths,
                                           const ModelOptions& model,
                                           const Environment& environment,
                                           const char* command) {
    std::vector<ModelFile> drafts;
    for (const std::string& path : paths) {
        const Result<std::string> found = find_model(path, environment.hub_cache);
        if (!found) return found.error();
        Result<ModelFile> file = ModelFile::open(found.value());
        if (!file) return file.error();
        file.value().choose_rope(model.context);
        take_packed_copy(file.value(), model, environment, {.bars = bars_on(environment)});
        print_rounded_types(command, file.value(), model);
        drafts.push_back(std::move(file).value());
    }
    return drafts;
}

Result<MeasuredCosts> measure_model(const ModelFile& target,
                                    const std::vector<ModelFile>& drafts,
                                    const PartsSearch& search,
                                    const ModelOptions& model,
                                    CostPlan plan,
                                    const Machine& machine,
                                    const std::function<void(const std::string&)>& told) {
    Result<std::vector<DraftPart>> parts = parts_of(target, search, plan);
    if (!parts) return parts.error();
    Result<std::vector<CostRecord>> hops = measure_hops(target.config().dim, plan);
    if (!hops) return hops.error();
    MeasuredCosts costs{.records = std::move(hops).value()};
    const auto add = [&](const ModelFile& file, const CostPlan& for_it) -> Status {
        Result<std::vector<CostRecord>> measured =
            measure_costs(file, model, for_it, machine, told);
        if (!measured) return measured.error();
        costs.remarks.push_back(
            visible(cost_name(file, model.dtype, 0) + " is " + file.path(), kLineShownBytesMax));
        costs.records.insert(costs.records.end(), measured.value().begin(), measured.value().end());
        return {};
    };
    if (Status s = add(target, plan); !s) return s.error();
    plan.depths.clear();
    for (const ModelFile& file : drafts) {
        if (Status s = add(file, plan); !s) return s.error();
    }
    for (const DraftPart& part : parts.value()) {
        CostPlan for_it = plan;
        for_it.depths = {part.file.config().layers};
        for_it.short_lists = {static_cast<int>(part.tokens.size())};
        if (Status s = add(part.file, for_it); !s) return s.error();
    }
    return costs;
}

}  // namespace paceline
