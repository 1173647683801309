#include "launch/session/pipeline_start.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "launch/load/gpu_check.hpp"
#include "launch/load/gpu_links.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/search_plan.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "launch/placement/edge_transports.hpp"
#include "launch/placement/found_machine.hpp"
#include "launch/placement/kv_room.hpp"
#include "launch/placement/node_shares.hpp"
#include "launch/placement/stage_sizes.hpp"
#include "launch/session/load_bar.hpp"

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

std::uint64_t weight_bytes(const std::vector<MemoryNeed>& needs) {
    std::uint64_t bytes = 0;
    for (const MemoryNeed& need : needs) bytes += need.weight_bytes;
    return bytes;
}

/// A channel takes descriptors in both of its processes and in this one, which runs out of them
/// first. A stage that has none left says so in its own error.
Error with_remedy(Error error) {
    const auto says = [&error](int number) {
        return error.what.find(std::strerror(number)) != std::string::npos;
    };
    rlimit limit{};
    if (says(EMFILE) && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        error.what += fmt::format(
            "; this process may open only {} files, and a pipeline needs some dozens for each "
            "stage: "
            "ulimit -n 1024 (or more) before the command, as the limit's owner (root, systemd's "
            "LimitNOFILE, docker's --ulimit)",
            limit.rlim_cur);
    } else if (says(ENFILE)) {
        error.what +=
            "; all processes of this machine together have no more files to open: fewer of them, "
            "or a "
            "higher limit (sysctl fs.file-max)";
    }
    return error;
}

Status resolve_transports(PipelinePlan& plan, const PipelineConfig& config) {
    GpuMachine machine{.source = "this machine", .name = "this machine", .gpus = {}};
    GpuLinks links;
    for (const PlacedStage& stage : plan.placement.stages) {
        if (!stage.device.gpu) continue;
        machine = found_machine(read_gpus(), plan.machine);
        links = gpu_links(*stage.device.gpu);
        break;
    }
    const Result<std::vector<EdgeTransport>> ways =
        choose_transports(plan.edges, plan.placement, config, {machine, links});
    if (!ways) return ways.error();
    if (has_gpus(plan.placement))
        plan.transports = transports_text(plan.edges, ways.value(), plan.placement, machine);
    return {};
}

/// With a cache for the contexts of several requests cut to what the memory leaves, but never below
/// one context: check_memory() says what that lacks.
Result<StageSizes> size_stages(const ModelFile& file,
                               const ModelOptions& options,
                               const ResolvedConfig& pipeline,
                               const KvSize& kv,
                               const Placement& placement,
                               const Machine& machine) {
    Result<StageSizes> sizes = StageSizes::open(file, options, pipeline, kv);
    if (!sizes || kv.bytes != 0 || kv.contexts == 1) return sizes;
    const GpuMachine gpus =
        has_gpus(placement) ? found_machine(read_gpus(), machine) : GpuMachine{};
    const std::int32_t pages = pages_for(sizes.value().text_slots());
    const std::int32_t fit = pages_that_fit(
        pages,
        memories_of(placement, sizes.value().needs(placement), read_available_memory(), gpus));
    if (fit == pages) return sizes;
    const std::uint64_t bytes = sizes.value().page_bytes() * static_cast<std::uint64_t>(fit);
    if (fit <= pages_for(sizes.value().context()))
        return StageSizes::open(file, options, pipeline, {.contexts = 1});
    return StageSizes::open(file, options, pipeline, {.bytes = bytes});
}

/// Before a stage is started, so that the message names the file.
Status check_self_draft(const ResolvedConfig& pipeline,
                        const Placement& placement,
                        const ModelFile& file) {
    const PipelineConfig& config = pipeline.config;
    if (!config.self_draft) return {};
    const Result<SelfDraftPlan> plan =
        plan_self_draft(*config.self_draft, pipeline.parts.files, file);
    Status status = plan.ok() ? Status{} : Status{plan.error()};
    if (status.ok())
        status = check_first_segment(plan.value().options, placement.stages.front().layers.last);
    if (status.ok()) status = check_state_kept(config.self_draft->search, "[self_draft]");
    if (status.ok()) return {};
    return Error{status.error().code, config.file + ": " + status.error().what};
}

/// The same of a draft that searches its skip set.
Status check_draft_search(const PipelineConfig& config, const ModelFile& file) {
    if (!config.draft || !config.draft->searches()) return {};
    const Result<SearchTrialOptions> search =
        plan_search(config.draft->skip, config.draft->search, file.config().layers, "[draft]");
    Status status = search.ok() ? Status{} : Status{search.error()};
    if (status.ok()) status = check_state_kept(config.draft->search, "[draft]");
    if (status.ok()) return {};
    return Error{status.error().code, config.file + ": " + status.error().what};
}

/// Those of the stages on this machine. An agent's stage that finds no room says so itself.
std::vector<MemoryNeed> needs_here(const PipelinePlan& plan) {
    std::vector<MemoryNeed> needs;
    for (std::size_t i = 0; i < plan.needs.size(); ++i) {
        const StageId id = plan.placement.stages[i].id;
        if (plan.placement.process_of(id).machine == 0) needs.push_back(plan.needs[i]);
    }
    return needs;
}

}  // namespace

std::string unpinned_text(int pin_error) {
    if (pin_error == 0) return "";
    return fmt::format(
        "stages run on any core: this system does not let them be pinned (sched_setaffinity: {}); "
        "they "
        "may be slower\n",
        std::strerror(pin_error));
}

std::vector<int> usable_cores(const Machine& machine, const ModelOptions& options) {
    std::vector<int> cores = machine.preferred_order();
    if (options.threads > 0)
        cores.resize(std::min(cores.size(), static_cast<std::size_t>(options.threads)));
    return cores;
}

Result<PipelinePlan> plan_pipeline(const ModelFile& file,
                                   const ModelOptions& options,
                                   const ResolvedConfig& pipeline,
                                   const KvSize& kv,
                                   const Cluster* cluster) {
    const std::vector<OtherMachine> others = others_of(cluster);
    const Result<PipelineConfig> shared = share_nodes(pipeline.config, others);
    if (!shared) return shared.error();
    const PipelineConfig& config = shared.value();
    if (Status s = check_gpus(config); !s) return s.error();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    const std::vector<int> cores = usable_cores(machine.value(), options);
    Result<Placement> placement = place(config, file.config().layers, cores, others);
    if (!placement) return placement.error();
    if (Status s = check_self_draft(pipeline, placement.value(), file); !s) return s.error();
    if (Status s = check_draft_search(config, file); !s) return s.error();
    Result<StageSizes> sizes =
        size_stages(file, options, pipeline, kv, placement.value(), machine.value());
    if (!sizes) return sizes.error();
    if (Status s = sizes.value().check_groups(config); !s) return s.error();
    PipelinePlan plan{.placement = std::move(placement).value(),
                      .needs = {},
                      .machine = std::move(machine).value(),
                      .edges = {},
                      .transports = {},
                      .rounded = {},
                      .context = sizes.value().context(),
                      .kv_slots = sizes.value().kv_slots(),
                      .text_slots = sizes.value().text_slots()};
    plan.rounded = sizes.value().rounded(plan.placement);
    plan.needs = sizes.value().needs(plan.placement);
    if (Status s = check_memory(needs_here(plan), read_available_memory()); !s) return s.error();
    plan.edges = edges_of(plan.placement, config, sizes.value().edges(plan.placement));
    if (Status s = resolve_transports(plan, config); !s) return s.error();
    return plan;
}

std::optional<std::uint64_t> wanted_host_bytes(const ModelFile& file,
                                               const ModelOptions& options,
                                               const ResolvedConfig& pipeline,
                                               const KvSize& kv) {
    const Result<Machine> machine = read_machine();
    if (!machine) return std::nullopt;
    const Result<Placement> placement =
        place(pipeline.config, file.config().layers, usable_cores(machine.value(), options));
    if (!placement || has_gpus(placement.value())) return std::nullopt;
    const Result<StageSizes> sizes = StageSizes::open(file, options, pipeline, kv);
    if (!sizes) return std::nullopt;
    std::uint64_t bytes = 0;
    for (const MemoryNeed& need : sizes.value().needs(placement.value())) bytes += need.on_host();
    return bytes;
}

Result<StartedPipeline> start_pipeline(const PipelinePlan& plan,
                                       const ModelFile& file,
                                       const ModelOptions& options,
                                       const ResolvedConfig& pipeline,
                                       RunLog& log,
                                       bool trace,
                                       Show bars,
                                       Cluster* cluster) {
    SupervisorOptions wanted = options_of(pipeline.config, log, trace);
    if (cluster != nullptr) {
        wanted.make_node = [cluster](NodeEvents events) {
            return cluster->hub->make_node(std::move(events), false);
        };
    }
    Result<std::unique_ptr<Supervisor>> created = Supervisor::create(std::move(wanted));
    if (!created) return with_remedy(created.error());
    Supervisor& supervisor = *created.value();
    const CommonAssignment common{.model = naming(options, file),
                                  .parts = pipeline.parts.files,
                                  .usable_cores = static_cast<int>(plan.machine.allowed.size()),
                                  .kv_slots = plan.kv_slots,
                                  .dim = file.config().dim,
                                  .verbose = log.wanted(),
                                  .edges = plan.edges};
    const std::vector<ProcessSpec> children = children_of(plan.placement, pipeline.config, common);
    if (Status s = supervisor.start(children); !s) return with_remedy(s.error());
    Result<std::vector<control::Hello>> hellos = [&] {
        const LoadBar bar{supervisor.pids(), weight_bytes(plan.needs), bars, log};
        return supervisor.await_hellos();
    }();
    if (!hellos) return with_remedy(hellos.error());
    if (Status s = check_hellos(hellos.value(), plan.placement); !s) return s.error();
    // Another machine may have another file by the same name.
    if (cluster != nullptr) {
        if (Status s = check_model(hellos.value(), plan.placement, file.fingerprint()); !s)
            return s.error();
    }
    std::vector<std::vector<int>> cores;
    for (const PlacedProcess& process : plan.placement.processes) cores.push_back(process.cores);
    Result<Wiring> wiring = supervisor.wire(plan.edges, choose_spin(plan.machine, cores));
    if (!wiring) return with_remedy(wiring.error());
    return StartedPipeline{std::move(created).value(), std::move(hellos).value(),
                           std::move(wiring).value()};
}

}  // namespace paceline
