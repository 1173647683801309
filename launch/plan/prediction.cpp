#include "launch/plan/prediction.hpp"

#include <algorithm>
#include <set>

#include "launch/placement/placement.hpp"
#include "launch/simulate/world.hpp"

namespace paceline {
namespace {

constexpr int kPrompts = 2;

/// How the processes that compute share the machine; nothing: in a way that no cost table has.
std::optional<StageTimingOptions> shared_as(const Placement& placement,
                                            const PipelineConfig& config,
                                            std::size_t cores) {
    const bool draft_computes = config.draft && config.draft->computes();
    std::vector<const PlacedProcess*> computing;
    for (const PlacedProcess& process : placement.processes) {
        const bool computes =
            std::any_of(process.stages.begin(), process.stages.end(), [&](StageId id) {
                return placement.stage(id).role == StageRole::Segment || draft_computes;
            });
        if (computes) computing.push_back(&process);
    }
    const bool turns =
        std::all_of(computing.begin(), computing.end(),
                    [&](const PlacedProcess* process) { return process->cores.size() == cores; });
    StageTimingOptions timing;
    if (turns && computing.size() <= cores) {
        timing.threads = static_cast<std::uint32_t>(cores);
        return timing;
    }
    std::set<int> taken;
    int threads = static_cast<int>(cores);
    for (const PlacedProcess* process : computing) {
        for (const int core : process->cores) {
            if (!taken.insert(core).second) return std::nullopt;
        }
        threads = std::min(threads, process->threads);
    }
    timing.threads = static_cast<std::uint32_t>(threads);
    timing.neighbours = computing.size() > 1 ? 1 : 0;
    return timing;
}

SimulateTask oracle_task(const PredictionInputs& inputs) {
    const int vocabulary = inputs.file.config().vocab_size;
    SimulateTask task;
    task.request.max_tokens = inputs.answer_tokens;
    task.oracle = inputs.accuracy;
    for (int i = 0; i < kPrompts; ++i) {
        TokenId token = i % vocabulary;
        std::vector<TokenId> prompt;
        for (Position position = 0; position < inputs.prompt_tokens; ++position)
            prompt.push_back(token = oracle_next(token, position, vocabulary));
        task.prompts.push_back(std::move(prompt));
    }
    return task;
}

/// What such a pipeline has that an oracle or a table of costs has not.
std::string left_out(const PipelineConfig& config) {
    if (config.draft && config.draft->looks_up()) return "without the lookup";
    if (config.self_draft && config.self_draft->head == SelfDraftHead::Adapter)
        return "without the adapter's time";
    if (config.exit && config.exit->ahead > 0) return "its heads as accurate as an exit";
    return {};
}

}  // namespace

Result<Prediction> predict_method(const PredictionInputs& inputs, const ResolvedConfig& pipeline) {
    const PipelineConfig& config = pipeline.config;
    const Result<Placement> placement = place(config, inputs.file.config().layers, inputs.cores);
    if (!placement) return placement.error();
    if (config.self_draft && config.self_draft->short_list > 0)
        return Prediction{.note = "an oracle has no short list"};
    const std::optional<StageTimingOptions> timing =
        shared_as(placement.value(), config, inputs.cores.size());
    if (!timing) return Prediction{.note = "its processes share cores"};
    const Result<SimulatedRun> run = simulate(inputs.file, inputs.model, pipeline, inputs.costs,
                                              "costs", *timing, oracle_task(inputs));
    if (!run) return run.error();
    Prediction found{.tokens_per_second = run.value().stats.rate};
    found.note = left_out(config);
    return found;
}

}  // namespace paceline
