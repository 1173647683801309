#include "launch/session/pipeline_start.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/backend/draft_backend.hpp"
#include "launch/backend/gpu_check.hpp"
#include "launch/backend/load_model.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

namespace {

SupervisorOptions options_of(const PipelineConfig& config, RunLog& log, bool trace) {
    SupervisorOptions options = supervisor_options(config.supervision);
    options.catch_signals = false;  // the command's own Ctrl-C ends the answer (interrupt.hpp)
    options.trace_events = trace ? kTraceEventsDefault : 0;
    options.on_log = [&log](std::string_view stage, std::string_view line) {
        log.stage_line(stage, line);
    };
    options.on_news = [&log](const std::string& sentence) { log.news(sentence); };
    return options;
}

/// The context of every request begins with a page of its own, and may speculate beyond its end.
std::int32_t slots_for(Position context, int requests) {
    if (requests == 1) return context + kSpareSlots;
    return requests * (pages_for(context) * kKvPageSlots + kSpareSlots);
}

}  // namespace

bool drafts_share_kv(const Placement& placement, const ModelOptions& options) {
    std::vector<KvType> types;
    for (const PlacedStage& stage : placement.stages) {
        if (stage.role != StageRole::Segment) types.push_back(kv_type(options, stage.device));
    }
    return std::adjacent_find(types.begin(), types.end(), std::not_equal_to<>{}) == types.end();
}

Result<PipelinePlan> plan_pipeline(const ModelFile& file,
                                   const ModelOptions& options,
                                   const PipelineConfig& config,
                                   int requests) {
    if (Status s = check_gpus(config); !s) return s.error();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    std::vector<int> cores = machine.value().preferred_order();
    if (options.threads > 0)
        cores.resize(std::min(cores.size(), static_cast<std::size_t>(options.threads)));
    Result<Placement> placement = place(config, file.config().layers, cores);
    if (!placement) return placement.error();
    PipelinePlan plan{.placement = std::move(placement).value(),
                      .needs = {},
                      .machine = std::move(machine).value(),
                      .sizes = {.dim = file.config().dim},
                      .context = context_of(options, file.config())};
    plan.kv_slots = slots_for(plan.context, requests);
    CpuOptions backend = cpu_options(options, ThreadPlan{}, plan.kv_slots);
    backend.rows_max = kWaveRowsMax;
    std::optional<DraftBackend> draft;
    if (config.draft && config.draft->computes()) {
        Result<DraftBackend> planned = plan_draft_backend(*config.draft, file, backend);
        if (!planned) return planned.error();
        draft = std::move(planned).value();
        if (drafts_share_kv(plan.placement, options))
            plan.sizes.draft_kv_row_bytes = kv_row_bytes(*draft, file);
    }
    ExitParts parts;
    if (config.exit) {
        Result<ExitParts> opened = open_exit_parts(*config.exit, file);
        if (!opened) return opened.error();
        parts = std::move(opened).value();
    }
    plan.needs = plan_stages(file, backend, plan.placement, config.exit, parts, draft,
                             kv_type(options, Device{0}));
    if (Status s = check_memory(plan.needs, read_memory_room()); !s) return s.error();
    return plan;
}

Result<StartedPipeline> start_pipeline(const PipelinePlan& plan,
                                       const ModelFile& file,
                                       const ModelOptions& options,
                                       const PipelineConfig& config,
                                       RunLog& log,
                                       bool trace) {
    Result<std::unique_ptr<Supervisor>> created =
        Supervisor::create(options_of(config, log, trace));
    if (!created) return created.error();
    Supervisor& supervisor = *created.value();
    SharedOrders orders{.model = options,
                        .usable_cores = static_cast<int>(plan.machine.allowed.size()),
                        .kv_slots = plan.kv_slots,
                        .verbose = log.wanted()};
    orders.model.model = file.path();
    const std::vector<ChildSpec> children = children_of(plan.placement, config, orders);
    if (Status s = supervisor.start(children); !s) return s.error();
    Result<std::vector<control::Hello>> hellos = supervisor.await_hellos();
    if (!hellos) return hellos.error();
    if (Status s = check_hellos(hellos.value(), plan.placement); !s) return s.error();
    std::vector<std::vector<int>> cores;
    for (const PlacedProcess& process : plan.placement.processes) cores.push_back(process.cores);
    Result<Wiring> wiring = supervisor.wire(edges_of(plan.placement, config, plan.sizes),
                                            choose_spin(plan.machine, cores));
    if (!wiring) return wiring.error();
    return StartedPipeline{std::move(created).value(), std::move(hellos).value(),
                           std::move(wiring).value()};
}

}  // namespace paceline
