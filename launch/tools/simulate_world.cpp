#include "launch/tools/simulate_world.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>

#include <spdlog/spdlog.h>

#include "actors/protocol/counters.hpp"
#include "ipc/wire/control.hpp"
#include "launch/backend/draft_backend.hpp"
#include "launch/backend/load_model.hpp"
#include "launch/backend/self_draft_plan.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/placement.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "launch/session/stage_actors.hpp"
#include "launch/tools/cost_names.hpp"
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
int head_tokens(const ExitConfig& exit, int layer) {
    const ExitHead head = exit.head_behind(layer);
    const bool trained = head == ExitHead::Trained || head == ExitHead::Adapter;
    return trained ? exit.part_tokens : exit.short_list;
}

/// The models whose jobs a process runs, in the words of a cost table.
StageCosts costs_of(const PlacedProcess& process,
                    const Placement& placement,
                    const PipelineConfig& config,
                    const ModelFile& file,
                    const std::string& dtype) {
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
                !verifies && config.exit ? head_tokens(*config.exit, stage.layers.last) : 0;
            if (costs.target.head != target)
                costs.target = {target, cost_name(file, dtype, short_list)};
        } else if (config.draft && config.draft->computes()) {
            const DraftConfig& draft = *config.draft;
            const bool own = draft.skips();
            const bool trained = draft.model == DraftModelKind::Trained;
            const auto name = [&](int short_list) {
                return own ? cost_name(file, dtype, short_list)
                           : cost_name(draft.model_file, dtype, short_list);
            };
            costs.draft = {name(0), name(trained ? draft.part_tokens : draft.short_list)};
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
                   const BackendMaker& make) {
    // Jobs run one after the other here: each may have the whole machine.
    assignment.cores = threads.cores;
    assignment.threads = threads.threads;
    control::Hello hello;
    Result<std::vector<HostedActor>> hosted = make_stage_actors(assignment, hello, make);
    if (!hosted) return hosted.error();
    auto body = std::make_unique<HostedBody>();
    body->hosted = std::move(hosted).value();
    SimProcessSpec spec;
    spec.process = {.id = process.id(), .actors = process.stages};
    spec.name = process.name;
    spec.on_death = process.on_death;
    // Nothing dies in this world, so a body is made once.
    spec.make = [shared = std::make_shared<std::unique_ptr<SimBody>>(std::move(body))] {
        return std::move(*shared);
    };
    parts.processes.push_back(std::move(spec));
    return {};
}

BackendMaker oracle_maker(OracleAccuracy accuracy) {
    return [accuracy](const ModelFile& file, const CpuOptions& options, const StageDuty& duty) {
        const auto part = duty.role == StageRole::Segment ? OracleBackend::Part::Target
                                                          : OracleBackend::Part::Draft;
        return Result<std::unique_ptr<Backend>>{
            std::make_unique<OracleBackend>(file.config(), options, part, accuracy)};
    };
}

Result<Parts> make_parts(const ModelFile& file,
                         const ModelOptions& model,
                         PipelineConfig config,
                         std::int32_t kv_slots,
                         const std::optional<OracleAccuracy>& oracle) {
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
    if (parts.placement.correct() && config.draft && config.draft->computes()) {
        const Result<DraftBackend> draft =
            plan_draft_backend(*config.draft, file, cpu_options(model, threads, kv_slots));
        if (!draft) return draft.error();
        sizes.draft_kv_row_bytes = kv_row_bytes(draft.value(), file);
    }
    parts.edges = edges_of(parts.placement, config, sizes);
    SharedOrders orders;
    orders.model = naming(model, file);
    orders.usable_cores = threads.usable_cores;
    orders.kv_slots = kv_slots;
    const BackendMaker make = oracle ? oracle_maker(*oracle) : real_backends();
    for (const PlacedProcess& process : parts.placement.processes) {
        if (Status s =
                add_process(parts, process, assignment_of(process, parts.placement, config, orders),
                            threads, make);
            !s)
            return s.error();
    }
    return parts;
}

/// Hands the prompts to the conductor, `at_once` at a time, and keeps what comes back.
class Asking {
public:
    Asking(const SimulateTask& task, Position context, ConductorActor& conductor)
        : task_{task}, context_{context}, conductor_{conductor} {
        answers.resize(task.prompts.size());
    }

    void begin() {
        for (int i = 0; i < task_.at_once; ++i) next();
    }
    [[nodiscard]] bool over() const { return error || ended_ == answers.size(); }

    std::vector<SimulatedAnswer> answers;
    std::optional<Error> error;

private:
    void next() {
        if (asked_ == answers.size() || error) return;
        const std::size_t index = asked_++;
        AnswerOrder order;
        order.request = task_.request;
        order.request.text = task_.prompts[index];
        order.request.context = context_;
        order.on_token = [this, index](TokenId token) {
            answers[index].ids.push_back(token);
            return Go::On;
        };
        order.on_end = [this, index](const AnswerFigures& figures, const Status& status) {
            answers[index].figures = figures;
            if (!status.ok() && !error) error = status.error();
            ++ended_;
            next();
        };
        const Result<RequestId> taken = conductor_.submit(std::move(order));
        if (!taken && !error) error = taken.error();
    }

    const SimulateTask& task_;
    Position context_;
    ConductorActor& conductor_;
    std::size_t asked_ = 0;
    std::size_t ended_ = 0;
};

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
    for (const SimulatedAnswer& answer : run.answers) {
        begun = std::min(begun, answer.figures.begun);
        ended = std::max(ended, answer.figures.last_token);
        tokens += answer.figures.generated_tokens;
        if (answer.figures.generated_tokens < 2) continue;
        behind_first += answer.figures.generated_tokens - 1;
        decoding += seconds_of(answer.figures.decode_time());
    }
    if (ended > begun) run.seconds = seconds_of(ended - begun);
    if (at_once > 1) {
        run.rate = run.seconds > 0 ? tokens / run.seconds : 0.0;
    } else {
        run.rate = decoding > 0 ? behind_first / decoding : 0.0;
    }
}

void add_figures(SimulatedRun& run,
                 const SimWorld& world,
                 const PipelineConfig& config,
                 const ModelConfig& model,
                 const Placement& placement) {
    PipelineFigures& figures = run.figures;
    figures.method = config.name;
    figures.seconds = run.seconds;
    figures.rate = run.rate;
    for (const SimulatedAnswer& answer : run.answers) figures.verdicts.add(answer.figures.verdicts);
    figures.accounts = accounts_of(config);
    // Its cost tables charge drafts the whole head.
    if (config.self_draft)
        figures.self_draft = self_draft_view(model, config.self_draft->auto_off, 0);
    if (config.draft && (config.draft->searches() || config.draft->is_tapped()))
        figures.draft_skip = DraftSkipView{.layers = model.layers};
    for (const auto& process : world.incarnations()) {
        const auto& counted = process->counters();
        for (std::size_t i = 0; i < kCounters; ++i) figures.counters[i] += counted[i];
        if (process->id() == kConductor) continue;
        const auto& hosted = process->spec().process.actors;
        const auto draft = placement.draft();
        if (figures.draft_skip && draft && std::count(hosted.begin(), hosted.end(), *draft) > 0)
            figures.draft_skip->gauges = process->gauges();
        if (process->id() == StageId{1}) {
            if (figures.self_draft) figures.self_draft->gauges = process->gauges();
            // Every segment counts the batches that go through its own layers.
            const auto& actors = process->spec().process.actors;
            const auto segments = std::count_if(actors.begin(), actors.end(), [&](StageId id) {
                return placement.stage(id).role == StageRole::Segment;
            });
            figures.target_forwards = counted[static_cast<std::size_t>(counters::kBatches)] /
                                      static_cast<std::uint64_t>(segments);
        }
        const double busy = run.seconds > 0
                                ? static_cast<double>(process->busy().count()) / 1e9 / run.seconds
                                : 0.0;
        figures.processes.push_back(
            {.name = process->spec().name, .busy = busy, .waiting = std::max(0.0, 1.0 - busy)});
    }
}

std::string trace_of(const SimWorld& world) {
    std::vector<ProcessTrace> traces;
    for (const auto& process : world.incarnations()) {
        traces.push_back({.name = process->spec().name,
                          .stage = process->id(),
                          .epoch = process->epoch(),
                          .events = process->events(),
                          .recorded = process->events().size()});
    }
    return trace_file_text(traces);
}

Status why_it_stopped(const SimWorld& world, const StageTiming& timing, const Asking& asking) {
    if (world.violation())
        return Error{Errc::Protocol, "the simulated pipeline broke a rule: " + *world.violation()};
    if (world.gave_up()) return *world.gave_up();
    if (timing.error()) return *timing.error();
    if (asking.error) return *asking.error;
    if (asking.over()) return {};
    return Error{Errc::Protocol,
                 fmt::format("the simulated pipeline came to a standstill after {} s",
                             world.now().count() / 1'000'000'000)};
}

}  // namespace

Result<SimulatedRun> simulate(const ModelFile& file,
                              const ModelOptions& model,
                              const PipelineConfig& config,
                              const CostTable& costs,
                              const std::string& costs_file,
                              StageTimingOptions timing_options,
                              const SimulateTask& task) {
    spdlog::set_level(spdlog::level::warn);  // stages tell what they load
    if (config.self_draft && config.self_draft->short_list > 0 && task.oracle)
        return Error{Errc::BadArgument,
                     "[self_draft] short_list: an oracle's text has no head to shorten"};
    Result<Position> context = context_for(task, model, file.config());
    if (!context) return context.error();
    std::int32_t kv_slots = (context.value() + kSpareSlots) * task.at_once;
    if (config.self_draft) kv_slots += scratch_slots(*config.self_draft, file.config().layers);
    Result<Parts> parts = make_parts(file, model, config, kv_slots, task.oracle);
    if (!parts) return parts.error();
    const Placement& placement = parts.value().placement;
    std::vector<StageCosts> stage_costs;
    for (const PlacedProcess& process : placement.processes)
        stage_costs.push_back(costs_of(process, placement, config, file, model.dtype));
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
    ConductorActor conductor{std::move(conductor_of), file.config().vocab_size, kv_slots};
    Asking asking{task, context.value(), conductor};
    world.start(conductor);
    world.call_at(SimTime{0}, [&asking] { asking.begin(); });
    (void)world.run([&asking] { return asking.over(); }, kForever);
    if (Status s = why_it_stopped(world, *timing.value(), asking); !s) return s.error();

    SimulatedRun run;
    run.answers = std::move(asking.answers);
    add_rates(run, task.at_once);
    add_figures(run, world, config, file.config(), placement);
    BusySpans spans;
    for (const auto& process : world.incarnations()) add_spans(process->events(), spans);
    run.overlap = overlap_of(spans);
    if (task.trace) run.trace = trace_of(world);
    return run;
}

}  // namespace paceline
