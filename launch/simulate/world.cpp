#include "launch/simulate/world.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/counters.hpp"
#include "ipc/wire/control.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/placement.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "launch/session/prompt_queue.hpp"
#include "launch/session/stage_actors.hpp"
#include "launch/simulate/cost_names.hpp"
#include "runtime/observe/trace_file.hpp"
#include "runtime/parent/affinity.hpp"
#include "runtime/simulation/sim_world.hpp"

namespace paceline {
namespace {

constexpr SimTime kForever{1'000'000'000'000'000};  // eleven simulated days

double seconds_of(Micros time) {
    return std::chrono::duration<double>(time).count();
}

struct HostedBody final : SimBody {
    [[nodiscard]] Actor& actor(StageId id) override {
        const auto found = std::find_if(hosted.begin(), hosted.end(),
                                        [id](const HostedActor& one) { return one.id == id; });
        PACE_CHECK(found != hosted.end(), "a process is asked for an actor it does not host");
        return *found->actor;
    }
    std::vector<HostedActor> hosted;
};

/// Tokens that the head of an exit after `layer` knows; 0: all.
int head_tokens(const ExitConfig& exit, const UsedParts& parts, int layer) {
    const ExitHead head = parts.head_behind(layer, exit.head);
    const bool trained = head == ExitHead::Trained || head == ExitHead::Adapter;
    return trained ? parts.exit_tokens : exit.short_list;
}

/// The models whose jobs a process runs, in the words of a cost table.
StageCosts costs_of(const PlacedProcess& process,
                    const Placement& placement,
                    const ResolvedConfig& pipeline,
                    const ModelFile& file,
                    const std::string& dtype) {
    const auto& [config, parts] = pipeline;
    StageCosts costs;
    costs.process = process.id();
    costs.actors = process.stages;
    costs.name = process.name;
    const std::string target = cost_name(file, dtype, 0);
    for (const StageId id : process.stages) {
        const PlacedStage& stage = placement.stage(id);
        if (stage.role == StageRole::Segment) {
            // The last segment's head is the whole one; an exit before it may have a short list.
            const bool verifies = id == placement.verifier();
            const int short_list =
                !verifies && config.exit ? head_tokens(*config.exit, parts, stage.layers.last) : 0;
            if (costs.target.head != target)
                costs.target = {target, cost_name(file, dtype, short_list)};
        } else if (config.draft && config.draft->computes()) {
            const DraftConfig& draft = *config.draft;
            const bool own = draft.skips();
            const bool trained = draft.is_part();
            const auto name = [&, &parts = parts](int short_list) {
                return own ? cost_name(file, dtype, short_list)
                           : cost_name(parts.files.draft, dtype, short_list);
            };
            costs.draft = {name(0), name(trained ? parts.draft_tokens : draft.short_list)};
        }
    }
    return costs;
}

/// A pipeline's parts as the simulated world takes them.
struct Parts {
    Placement placement;
    std::vector<SimProcessSpec> processes;
    std::vector<EdgeSpec> edges;
};

Status add_process(Parts& parts,
                   const PlacedProcess& process,
                   StageAssignment assignment,
                   const ThreadPlan& threads,
                   bool shares_device,
                   const BackendMaker& make) {
    // Jobs run one after the other here: each may have the whole machine.
    assignment.cores = threads.cores;
    assignment.threads = threads.threads;
    assignment.shares_cores = shares_device;
    control::Hello hello;
    Result<std::vector<HostedActor>> hosted = make_stage_actors(assignment, hello, make);
    if (!hosted) return hosted.error();
    auto body = std::make_unique<HostedBody>();
    body->hosted = std::move(hosted).value();
    SimProcessSpec spec;
    spec.process = {.id = process.id(),
                    .actors = process.stages,
                    .name = process.name,
                    .on_death = process.on_death};
    // Nothing dies in this world, so a body is made once.
    spec.make = [shared = std::make_shared<std::unique_ptr<SimBody>>(std::move(body))] {
        return std::move(*shared);
    };
    parts.processes.push_back(std::move(spec));
    return {};
}

BackendMaker oracle_maker(OracleAccuracy accuracy) {
    return [accuracy](const ModelFile& file, const CpuOptions& options, const StageSpec& spec) {
        const auto part = spec.role == StageRole::Segment ? OracleBackend::Part::Target
                                                          : OracleBackend::Part::Draft;
        return Result<std::unique_ptr<Backend>>{
            std::make_unique<OracleBackend>(file.config(), options, part, accuracy)};
    };
}

Result<Parts> make_parts(const ModelFile& file,
                         const ModelOptions& model,
                         const ResolvedConfig& pipeline,
                         std::int32_t kv_slots,
                         const SimulateTask& task) {
    PipelineConfig config = pipeline.config;
    // What a simulated search finds is not to be kept for a real one.
    if (config.draft) config.draft->search.state.clear();
    if (config.self_draft) config.self_draft->search.state.clear();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    Result<Placement> placement =
        place(config, file.config().layers, machine.value().preferred_order());
    if (!placement) return placement.error();
    Parts parts;
    parts.placement = std::move(placement).value();
    // Devices are simulated; what they compute, this machine's CPU does.
    for (PlacedStage& stage : parts.placement.stages) stage.device = {};
    const ThreadPlan threads = plan_threads(machine.value(), 0);
    EdgeSizes sizes{.dim = file.config().dim};
    const bool sized =
        config.draft && (parts.placement.correct() || config.draft->reads_features());
    if (sized && config.draft->computes()) {
        const Result<DraftBackend> draft = plan_draft_backend(
            *config.draft, pipeline.parts.files, file, cpu_options(model, threads, kv_slots));
        if (!draft) return draft.error();
        if (parts.placement.correct()) sizes.draft_kv_row_bytes = kv_row_bytes(draft.value(), file);
        const std::optional<EagleSpec>& eagle = draft.value().options.eagle;
        if (eagle) sizes.feature_states = eagle->states();
    }
    parts.edges = edges_of(parts.placement, config, sizes);
    CommonAssignment common;
    common.model = naming(model, file);
    common.parts = pipeline.parts.files;
    common.usable_cores = threads.usable_cores;
    common.kv_slots = kv_slots;
    common.dim = file.config().dim;
    const BackendMaker make = task.oracle ? oracle_maker(*task.oracle) : real_backends();
    for (const PlacedProcess& process : parts.placement.processes) {
        if (Status s =
                add_process(parts, process, assignment_of(process, parts.placement, config, common),
                            threads, !task.shared_devices.empty(), make);
            !s)
            return s.error();
    }
    return parts;
}

Status share_devices(Parts& parts, const std::vector<std::vector<std::string>>& devices) {
    std::string known;
    for (const SimProcessSpec& spec : parts.processes)
        known += (known.empty() ? "" : ", ") + spec.process.name;
    for (const std::vector<std::string>& names : devices) {
        if (names == std::vector<std::string>{"all"} && devices.size() == 1) {
            for (SimProcessSpec& spec : parts.processes) spec.device = "all";
            return {};
        }
        const std::string device = fmt::format("{}", fmt::join(names, ","));
        for (const std::string& name : names) {
            const auto found =
                std::find_if(parts.processes.begin(), parts.processes.end(),
                             [&](const SimProcessSpec& spec) { return spec.process.name == name; });
            if (found == parts.processes.end())
                return Error{Errc::BadArgument,
                             fmt::format("shared device {}: there is no process '{}', but {}",
                                         device, name, known)};
            if (!found->device.empty())
                return Error{Errc::BadArgument,
                             fmt::format("shared device {}: '{}' is on {} already", device, name,
                                         found->device)};
            found->device = device;
        }
    }
    return {};
}

/// Tokens of prompt and answer together: of the longest prompt.
Result<Position> context_for(const SimulateTask& task,
                             const ModelOptions& model,
                             const ModelConfig& config) {
    std::size_t longest = 0;
    for (const auto& prompt : task.prompts) longest = std::max(longest, prompt.size());
    const Position most = context_of(model, config);
    if (longest + 1 > static_cast<std::size_t>(most)) {
        return Error{Errc::BadArgument,
                     fmt::format("a prompt has {} tokens, the context is {}", longest, most)};
    }
    const std::int32_t limit = task.request.max_tokens;
    if (limit < 0) return most;
    return std::min(most, static_cast<Position>(longest) + limit + 1);
}

void add_rates(SimulatedRun& run, int at_once) {
    Micros begun = Micros::max();
    Micros ended{0};
    double decoding = 0.0;
    double behind_first = 0.0;
    double tokens = 0.0;
    for (const Answer& answer : run.answers) {
        begun = std::min(begun, answer.stats.begun);
        ended = std::max(ended, answer.stats.last_token);
        tokens += answer.stats.generated_tokens;
        if (answer.stats.generated_tokens < 2) continue;
        behind_first += answer.stats.generated_tokens - 1;
        decoding += seconds_of(answer.stats.decode_time());
    }
    if (ended > begun) run.stats.seconds = seconds_of(ended - begun);
    if (at_once > 1) {
        run.stats.rate = run.stats.seconds > 0 ? tokens / run.stats.seconds : 0.0;
    } else {
        run.stats.rate = decoding > 0 ? behind_first / decoding : 0.0;
    }
}

void add_stats(SimulatedRun& run,
               const SimWorld& world,
               const PipelineConfig& config,
               const ModelConfig& model,
               const Placement& placement) {
    PipelineStats& stats = run.stats;
    stats.method = config.name;
    for (const Answer& answer : run.answers) stats.verdicts.add(answer.stats.verdicts);
    stats.metrics = metrics_of(config);
    // Its cost tables charge drafts the whole head.
    if (config.self_draft)
        stats.self_draft = self_draft_view(model, config.self_draft->options.auto_off, 0);
    if (config.draft && (config.draft->searches() || config.draft->is_tapped()))
        stats.draft_skip = DraftSkipView{.layers = model.layers};
    for (const auto& process : world.stages().incarnations()) {
        const auto& counted = process->telemetry.block.counters;
        for (std::size_t i = 0; i < kCounters; ++i) stats.counters[i] += counted[i];
        const SimProcessSpec& spec = process->self.spec;
        if (process->self.is_conductor()) continue;
        const auto draft = placement.draft();
        if (stats.draft_skip && draft && spec.hosts(*draft))
            stats.draft_skip->gauges = process->telemetry.block.gauges;
        if (process->self.id() == StageId{1}) {
            if (stats.self_draft) stats.self_draft->gauges = process->telemetry.block.gauges;
            // Every segment counts the batches that go through its own layers.
            const auto& actors = spec.process.actors;
            const auto segments = std::count_if(actors.begin(), actors.end(), [&](StageId id) {
                return placement.stage(id).role == StageRole::Segment;
            });
            stats.target_forwards = counted[static_cast<std::size_t>(counters::kBatches)] /
                                    static_cast<std::uint64_t>(segments);
        }
        const double busy =
            stats.seconds > 0
                ? static_cast<double>(process->telemetry.busy.count()) / 1e9 / stats.seconds
                : 0.0;
        stats.processes.push_back(
            {.name = spec.process.name, .busy = busy, .waiting = std::max(0.0, 1.0 - busy)});
    }
}

std::string trace_of(const SimWorld& world) {
    std::vector<ProcessTrace> traces;
    for (const auto& process : world.stages().incarnations()) {
        traces.push_back({.name = process->self.spec.process.name,
                          .stage = process->self.id(),
                          .epoch = process->self.epoch,
                          .events = process->telemetry.trace,
                          .recorded = process->telemetry.trace.size()});
    }
    return trace_file_text(traces);
}

Status why_it_stopped(const SimWorld& world, const StageTiming& timing, const PromptQueue& queue) {
    if (world.violation())
        return Error{Errc::Protocol, "the simulated pipeline broke a rule: " + *world.violation()};
    if (world.gave_up()) return *world.gave_up();
    if (timing.error()) return *timing.error();
    if (queue.first_error()) return *queue.first_error();
    if (queue.over()) return {};
    return Error{Errc::Protocol,
                 fmt::format("the simulated pipeline came to a standstill after {} s",
                             world.now().count() / 1'000'000'000)};
}

}  // namespace

Result<SimulatedRun> simulate(const ModelFile& file,
                              const ModelOptions& model,
                              const ResolvedConfig& pipeline,
                              const CostTable& costs,
                              const std::string& costs_file,
                              StageTimingOptions timing_options,
                              const SimulateTask& task) {
    spdlog::set_level(spdlog::level::warn);  // stages tell what they load
    const PipelineConfig& config = pipeline.config;
    if (config.self_draft && config.self_draft->short_list > 0 && task.oracle)
        return Error{Errc::BadArgument,
                     "[self_draft] short_list: an oracle's text has no head to shorten"};
    Result<Position> context = context_for(task, model, file.config());
    if (!context) return context.error();
    const std::int32_t text_slots = (context.value() + kSpareSlots) * task.at_once;
    std::int32_t kv_slots = text_slots;
    if (config.self_draft) kv_slots += scratch_slots(*config.self_draft, file.config().layers);
    Result<Parts> parts = make_parts(file, model, pipeline, kv_slots, task);
    if (!parts) return parts.error();
    if (Status s = share_devices(parts.value(), task.shared_devices); !s) return s.error();
    const Placement& placement = parts.value().placement;
    std::vector<StageCosts> stage_costs;
    for (const PlacedProcess& process : placement.processes)
        stage_costs.push_back(costs_of(process, placement, pipeline, file, model.dtype));
    timing_options.target_layers = file.config().layers;
    Result<std::unique_ptr<StageTiming>> timing =
        StageTiming::make(costs, costs_file, stage_costs, parts.value().edges, timing_options);
    if (!timing) return timing.error();

    SimOptions options;
    options.tracing = true;
    options.jobs_may_run_early = false;
    SimWorld world{options, *timing.value(), parts.value().processes, parts.value().edges};
    ConductorPlan conductor_of = conductor_plan(placement, config.supervision);
    conductor_of.acceptance = config.acceptance;
    ConductorActor conductor{std::move(conductor_of), file.config().vocab_size, text_slots};
    Request request = task.request;
    request.context = context.value();
    PromptQueue queue{task.prompts, std::move(request),
                      [&](AnswerOrder order) { return conductor.submit(std::move(order)); }};
    world.start(conductor);
    world.call_at(SimTime{0}, [&] { queue.begin(task.at_once); });
    (void)world.run([&] { return queue.first_error() || queue.over(); }, kForever);
    if (Status s = why_it_stopped(world, *timing.value(), queue); !s) return s.error();

    SimulatedRun run;
    run.answers = std::move(queue.answers);
    add_rates(run, task.at_once);
    add_stats(run, world, config, file.config(), placement);
    BusySpans spans;
    for (const auto& process : world.stages().incarnations())
        add_spans(process->telemetry.trace, spans);
    run.overlap = overlap_of(spans);
    if (task.trace) run.trace = trace_of(world);
    return run;
}

}  // namespace paceline
