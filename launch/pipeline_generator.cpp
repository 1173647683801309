// The Generator of a pipeline of processes: spawns the stages, checks that they fit together,
// wires them, and runs the conductor's loop once per answer.

#include <cstdio>
#include <fstream>
#include <string>

#include "actors/conductor_actor.hpp"
#include "launch/generator.hpp"
#include "launch/gpu_check.hpp"
#include "launch/memory_plan.hpp"
#include "launch/pipeline_layout.hpp"
#include "runtime/stage_loop.hpp"
#include "runtime/supervisor.hpp"
#include "runtime/trace_file.hpp"

namespace paceline {
namespace {

/// The most memory a living process has had, from the kernel; 0 if it cannot be read.
std::uint64_t peak_bytes_of(pid_t pid) {
    std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
    }
    return 0;
}

/// What a pipeline is made of, decided before anything is spawned.
struct Plan {
    Placement placement;
    std::vector<MemoryNeed> needs;  // in the order of the stages
    Machine machine;
    Position context = 0;
    std::int32_t kv_slots = 0;
};

Result<Plan> make_plan(const ModelFile& file,
                       const ModelOptions& options,
                       const PipelineConfig& config) {
    if (Status s = check_gpus(config); !s) return s.error();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    Result<Placement> placement =
        place(config, file.config().layers, machine.value().preferred_order());
    if (!placement) return placement.error();
    Plan plan{.placement = std::move(placement).value(),
              .needs = {},
              .machine = std::move(machine).value(),
              .context = context_of(options, file.config())};
    plan.kv_slots = plan.context + kSpareSlots;
    CpuOptions backend = cpu_options(options, ThreadPlan{}, plan.kv_slots);
    backend.rows_max = kWaveRowsMax;
    plan.needs = plan_stages(file, backend, plan.placement);
    if (Status s = check_memory(plan.needs, read_memory_room()); !s) return s.error();
    return plan;
}

/// Stages that have loaded, fit together and have their channels.
struct Started {
    std::unique_ptr<Supervisor> supervisor;
    std::vector<control::Hello> hellos;
    Wiring wiring;  // the conductor's
};

SupervisorOptions options_of(const PipelineConfig& config, const RunHooks& hooks) {
    SupervisorOptions options = supervisor_options(config.supervision);
    options.catch_signals = false;  // the command's own Ctrl-C ends the answer (interrupt.hpp)
    options.trace_events = hooks.trace ? kTraceEventsDefault : 0;
    options.on_log = [log = hooks.log](std::string_view stage, std::string_view line) {
        log->stage_line(stage, line);
    };
    options.on_news = [log = hooks.log](const std::string& sentence) { log->news(sentence); };
    return options;
}

Result<Started> start(const Plan& plan,
                      const ModelFile& file,
                      const ModelOptions& options,
                      const PipelineConfig& config,
                      const RunHooks& hooks) {
    Result<std::unique_ptr<Supervisor>> created = Supervisor::create(options_of(config, hooks));
    if (!created) return created.error();
    Supervisor& supervisor = *created.value();
    ModelOptions model = options;
    model.model = file.path();
    const auto usable_cores = static_cast<int>(plan.machine.allowed.size());
    const std::vector<ChildSpec> children = children_of(plan.placement, config, model, usable_cores,
                                                        plan.kv_slots, hooks.log->wanted());
    if (Status s = supervisor.start(children); !s) return s.error();
    Result<std::vector<control::Hello>> hellos = supervisor.await_hellos();
    if (!hellos) return hellos.error();
    if (Status s = check_hellos(hellos.value(), plan.placement); !s) return s.error();
    std::vector<std::vector<int>> cores;
    for (const PlacedProcess& process : plan.placement.processes) cores.push_back(process.cores);
    Result<Wiring> wiring = supervisor.wire(edges_of(plan.placement, file.config().dim),
                                            choose_spin(plan.machine, cores));
    if (!wiring) return wiring.error();
    return Started{std::move(created).value(), std::move(hellos).value(),
                   std::move(wiring).value()};
}

class PipelineGenerator final : public Generator {
public:
    PipelineGenerator(
        Started started, Plan plan, const PipelineConfig& config, int vocab_size, RunLog& log)
        : supervisor_{std::move(started.supervisor)},
          conductor_{conductor_plan(plan.placement, config.supervision), vocab_size, plan.kv_slots},
          loop_{std::make_unique<StageLoop>(
              std::move(started.wiring), *supervisor_, StageLoopOptions{})},
          plan_{std::move(plan)},
          config_{config},
          hellos_{std::move(started.hellos)},
          log_{log} {
        loop_->add(kConductor, conductor_);
    }

    PipelineGenerator(const PipelineGenerator&) = delete;
    PipelineGenerator& operator=(const PipelineGenerator&) = delete;
    ~PipelineGenerator() override {
        const Status ended = supervisor_->shutdown();
        log_.info(ended.ok() ? "all stages have ended" : ended.error().what);
    }

    Result<GeneratorFigures> run(std::span<const TokenId> more,
                                 const PlainParams& params,
                                 const PlainDecoder::OnToken& on_token,
                                 const CancelToken& cancel) override {
        AnswerFigures figures;
        Status answered;
        AnswerOrder order;
        order.continues = request_;
        order.request = request_of(more, params);
        order.on_token = on_token;
        order.cancelled = [&cancel] { return cancel.cancelled(); };
        order.on_end = [&](const AnswerFigures& cost, const Status& status) {
            figures = cost;
            answered = status;
            conductor_.leave();
        };
        const Result<RequestId> taken = conductor_.submit(std::move(order));
        if (!taken) return taken.error();
        request_ = taken.value();
        if (Status ended = loop_->run(); !ended) return ended.error();
        if (!answered) return answered.error();
        return to_generator_figures(figures);
    }

    [[nodiscard]] Position text_tokens() const override {
        return request_ ? static_cast<Position>(conductor_.text(*request_).size()) : 0;
    }
    [[nodiscard]] Position context() const override { return plan_.context; }
    void reset() override {
        if (request_) conductor_.close(*request_);
        request_.reset();
    }

    [[nodiscard]] GeneratorTraits traits() const override {
        GeneratorTraits traits{.method = config_.name,
                               .equality_class = hellos_.front().equality_class,
                               .threads = 0,
                               .memory = {},
                               .peak_bytes = 0};
        for (const PlacedProcess& process : plan_.placement.processes)
            traits.threads += process.threads;
        for (const control::Hello& hello : hellos_) {
            traits.memory.weight_bytes += hello.weight_bytes;
            traits.memory.kv_bytes += hello.kv_bytes;
            traits.memory.workspace_bytes += hello.workspace_bytes;
        }
        for (const pid_t pid : supervisor_->pids()) {
            if (pid > 0) traits.peak_bytes += peak_bytes_of(pid);
        }
        return traits;
    }

    [[nodiscard]] std::string trace_text() const override {
        std::vector<ProcessTrace> traces;
        for (const StageRecord& record : supervisor_->records()) {
            traces.push_back({.name = record.name,
                              .stage = record.id,
                              .epoch = record.epoch,
                              .events = record.page.trace(),
                              .recorded = record.page.traced()});
        }
        return trace_file_text(traces);
    }

private:
    [[nodiscard]] Request request_of(std::span<const TokenId> more,
                                     const PlainParams& params) const {
        Request request;
        request.text.assign(more.begin(), more.end());
        request.sampling = params.sampling;
        request.end_tokens = params.end_tokens;
        request.max_tokens = params.max_tokens;
        request.gamma = config_.draft ? config_.draft->gamma : 0;
        request.context = plan_.context;
        return request;
    }

    static GeneratorFigures to_generator_figures(const AnswerFigures& a) {
        GeneratorFigures figures;
        figures.decoding.prompt_tokens = a.prompt_tokens;
        figures.decoding.generated_tokens = a.generated_tokens;
        figures.decoding.finish = a.finish;
        if (a.generated_tokens > 0) {
            figures.decoding.prefill = a.first_token - a.begun;
            figures.decoding.first_token = a.first_token - a.begun;
            figures.decoding.decode = a.last_token - a.first_token;
        }
        figures.waves = a.waves;
        figures.proposed_tokens = a.proposed_tokens;
        figures.accepted_tokens = a.accepted_tokens;
        figures.replays = a.replays;
        return figures;
    }

    std::unique_ptr<Supervisor> supervisor_;  // before the loop, which borrows it
    ConductorActor conductor_;
    std::unique_ptr<StageLoop> loop_;
    Plan plan_;
    PipelineConfig config_;
    std::vector<control::Hello> hellos_;  // in the order of the processes
    RunLog& log_;
    std::optional<RequestId> request_;  // the conversation, once it has begun
};

}  // namespace

Result<std::unique_ptr<Generator>> make_pipeline_generator(const ModelFile& file,
                                                           const ModelOptions& options,
                                                           const PipelineConfig& config,
                                                           const RunHooks& hooks) {
    Result<Plan> plan = make_plan(file, options, config);
    if (!plan) return plan.error();
    Result<Started> started = start(plan.value(), file, options, config, hooks);
    if (!started) return started.error();
    const std::string table = placement_table(
        plan.value().placement, started.value().supervisor->pids(), plan.value().needs);
    std::fputs(table.c_str(), stderr);
    return std::unique_ptr<Generator>{
        std::make_unique<PipelineGenerator>(std::move(started).value(), std::move(plan).value(),
                                            config, file.config().vocab_size, *hooks.log)};
}

}  // namespace paceline
