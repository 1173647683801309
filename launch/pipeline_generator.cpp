// The Generator of a pipeline of processes: spawns the stages, checks that they fit together,
// wires them, and runs the conductor's loop once per answer.

#include <cstdio>
#include <fstream>
#include <string>

#include "actors/conductor_actor.hpp"
#include "launch/generator.hpp"
#include "launch/stage_assignment.hpp"
#include "runtime/stage_loop.hpp"
#include "runtime/supervisor.hpp"

namespace paceline {
namespace {

/// Slots beyond the context, for speculation that runs ahead of it.
constexpr std::int32_t kSpareSlots = 2 * static_cast<std::int32_t>(kWaveRowsMax);
constexpr std::uint32_t kTensorSlots = 8;

StageId id_of(std::size_t index) {
    return StageId{static_cast<std::uint16_t>(index + 1)};
}

/// Segments in the order of their layers, then the draft: the order of the stage ids.
std::vector<PlacedStage> in_id_order(const std::vector<PlacedStage>& placed) {
    std::vector<PlacedStage> stages;
    for (const StageRole role : {StageRole::Segment, StageRole::Draft}) {
        for (const PlacedStage& stage : placed) {
            if (stage.role == role) stages.push_back(stage);
        }
    }
    return stages;
}

struct Layout {
    std::vector<PlacedStage> stages;  // by id: stages[i] is stage i + 1
    int segments = 0;
    bool drafts = false;

    [[nodiscard]] StageId judge() const { return id_of(static_cast<std::size_t>(segments) - 1); }
    [[nodiscard]] std::optional<StageId> draft() const {
        return drafts ? std::optional{id_of(static_cast<std::size_t>(segments))} : std::nullopt;
    }
};

Layout layout_of(const std::vector<PlacedStage>& placed) {
    Layout layout{in_id_order(placed), 0, false};
    for (const PlacedStage& stage : layout.stages) {
        if (stage.role == StageRole::Segment) ++layout.segments;
        if (stage.role == StageRole::Draft) layout.drafts = true;
    }
    return layout;
}

std::vector<EdgeSpec> edges_of(const Layout& layout, int dim) {
    std::vector<EdgeSpec> edges;
    const std::size_t wave_bytes =
        std::size_t{kWaveRowsMax} * static_cast<std::size_t>(dim) * sizeof(float);
    for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(layout.segments); ++i) {
        edges.push_back({.from = id_of(i),
                         .to = id_of(i + 1),
                         .tensor_slots = kTensorSlots,
                         .tensor_bytes = wave_bytes});
        edges.push_back({.from = layout.judge(), .to = id_of(i)});
    }
    edges.push_back({.from = layout.judge(), .to = kConductor});
    if (const std::optional<StageId> draft = layout.draft()) {
        edges.push_back({.from = *draft, .to = id_of(0)});
        edges.push_back({.from = layout.judge(), .to = *draft});
    }
    for (std::size_t i = 0; i < layout.stages.size(); ++i)
        edges.push_back({.from = kConductor, .to = id_of(i)});
    return edges;
}

/// Refuses stages that would not give the bits of one process.
Status check_hellos(const std::vector<control::Hello>& hellos, const Layout& layout) {
    const control::Hello& first = hellos.front();
    for (std::size_t i = 0; i < hellos.size(); ++i) {
        const control::Hello& hello = hellos[i];
        const std::string who = "stage " + layout.stages[i].name;
        if (hello.vocab_size != first.vocab_size) {
            return Error{Errc::BadArgument,
                         who + " has a vocabulary of " + std::to_string(hello.vocab_size) + ", " +
                             layout.stages[0].name + " one of " + std::to_string(first.vocab_size)};
        }
        if (layout.stages[i].role != StageRole::Segment) continue;
        if (hello.model_fingerprint != first.model_fingerprint) {
            return Error{Errc::BadArgument,
                         who + " loaded other weights than " + layout.stages[0].name};
        }
        if (hello.equality_class != first.equality_class) {
            return Error{Errc::BadArgument,
                         who + " is of the equality class \"" + hello.equality_class + "\", " +
                             layout.stages[0].name + " of \"" + first.equality_class +
                             "\": mixed classes do not give equal bits"};
        }
    }
    return {};
}

/// The most memory a living process has had, from the kernel; 0 if it cannot be read.
std::uint64_t peak_bytes_of(pid_t pid) {
    std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
    }
    return 0;
}

class PipelineGenerator final : public Generator {
public:
    PipelineGenerator(std::unique_ptr<Supervisor> supervisor,
                      Wiring wiring,
                      const Layout& layout,
                      const PipelineConfig& config,
                      const ModelConfig& model,
                      Position context,
                      std::int32_t kv_slots,
                      std::vector<control::Hello> hellos)
        : supervisor_{std::move(supervisor)},
          conductor_{conductor_plan(layout)},
          loop_{std::make_unique<StageLoop>(std::move(wiring), *supervisor_, StageLoopOptions{})},
          layout_{layout},
          config_{config},
          vocab_size_{model.vocab_size},
          context_{context},
          kv_slots_{kv_slots},
          hellos_{std::move(hellos)} {
        loop_->add(kConductor, conductor_);
    }

    ~PipelineGenerator() override { (void)supervisor_->shutdown(); }

    Result<GeneratorFigures> run(std::span<const TokenId> more,
                                 const PlainParams& params,
                                 const PlainDecoder::OnToken& on_token,
                                 const CancelToken& cancel) override {
        Request request;
        request.sampling = params.sampling;
        request.end_tokens = params.end_tokens;
        request.max_tokens = params.max_tokens;
        request.gamma = config_.draft ? config_.draft->gamma : 0;
        request.context = context_;
        const auto cancelled = [&cancel] { return cancel.cancelled(); };
        if (Status s = conductor_.prepare(more, std::move(request), vocab_size_, kv_slots_,
                                          on_token, cancelled);
            !s)
            return s.error();
        if (started_) conductor_.begin();
        started_ = true;
        if (Status ended = loop_->run(); !ended) return ended.error();
        return figures();
    }

    [[nodiscard]] Position text_tokens() const override {
        return static_cast<Position>(conductor_.text().size());
    }
    [[nodiscard]] Position context() const override { return context_; }
    void reset() override { conductor_.reset(); }

    [[nodiscard]] GeneratorTraits traits() const override {
        GeneratorTraits traits{.method = config_.name,
                               .equality_class = hellos_.front().equality_class,
                               .threads = 0,
                               .memory = {},
                               .peak_bytes = 0};
        for (const PlacedStage& stage : layout_.stages) traits.threads += stage.threads;
        for (const control::Hello& hello : hellos_) {
            traits.memory.weight_bytes += hello.weight_bytes;
            traits.memory.kv_bytes += hello.kv_bytes;
            traits.memory.workspace_bytes += hello.workspace_bytes;
        }
        for (const pid_t pid : supervisor_->pids()) traits.peak_bytes += peak_bytes_of(pid);
        return traits;
    }

private:
    static ConductorPlan conductor_plan(const Layout& layout) {
        ConductorPlan plan{.judge = layout.judge(), .begin_to = {}};
        // The first segment sets everything going, so it hears of a request last.
        for (std::size_t i = layout.stages.size(); i-- > 0;) plan.begin_to.push_back(id_of(i));
        return plan;
    }

    [[nodiscard]] GeneratorFigures figures() const {
        const AnswerFigures& a = conductor_.figures();
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
        return figures;
    }

    std::unique_ptr<Supervisor> supervisor_;  // before the loop, which borrows it
    ConductorActor conductor_;
    std::unique_ptr<StageLoop> loop_;
    Layout layout_;
    PipelineConfig config_;
    int vocab_size_;
    Position context_;
    std::int32_t kv_slots_;
    std::vector<control::Hello> hellos_;
    bool started_ = false;
};

std::vector<ChildSpec> children_of(const Layout& layout,
                                   const ModelFile& file,
                                   const ModelOptions& options,
                                   const PipelineConfig& config,
                                   const Machine& machine,
                                   std::int32_t kv_slots) {
    std::vector<ChildSpec> children;
    for (std::size_t i = 0; i < layout.stages.size(); ++i) {
        const PlacedStage& stage = layout.stages[i];
        StageAssignment assignment;
        assignment.role = stage.role;
        assignment.model = options;
        assignment.model.model = file.path();
        assignment.layers = stage.layers;
        assignment.cores = stage.cores;
        assignment.threads = stage.threads;
        assignment.usable_cores = static_cast<int>(machine.allowed.size());
        assignment.kv_slots = kv_slots;
        assignment.segment = stage.role == StageRole::Segment ? static_cast<int>(i) + 1 : 0;
        assignment.segments = layout.segments;
        assignment.draft_stage = layout.drafts ? layout.segments + 1 : 0;
        assignment.draft_wait_us = config.schedule.draft_wait.count();
        assignment.draft = config.draft.value_or(DraftConfig{});
        children.push_back({.id = id_of(i),
                            .name = stage.name,
                            .cores = stage.cores,
                            .payload = encode(assignment)});
    }
    return children;
}

void print_placement(const Layout& layout, const std::vector<control::Hello>& hellos) {
    std::fprintf(stderr, "%-14s %-8s %-10s %-10s %10s %10s\n", "stage", "role", "layers", "cores",
                 "weights", "kv");
    for (std::size_t i = 0; i < layout.stages.size(); ++i) {
        const PlacedStage& stage = layout.stages[i];
        const std::string layers =
            stage.role == StageRole::Segment
                ? std::to_string(stage.layers.first) + ".." + std::to_string(stage.layers.last - 1)
                : "-";
        std::fprintf(stderr, "%-14s %-8s %-10s %-10s %7.1f MB %7.1f MB\n", stage.name.c_str(),
                     hellos[i].role.c_str(), layers.c_str(), format_core_list(stage.cores).c_str(),
                     static_cast<double>(hellos[i].weight_bytes) / 1e6,
                     static_cast<double>(hellos[i].kv_bytes) / 1e6);
    }
}

}  // namespace

Result<std::unique_ptr<Generator>> make_pipeline_generator(const ModelFile& file,
                                                           const ModelOptions& options,
                                                           const PipelineConfig& config,
                                                           const Environment& environment) {
    const Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    const Result<std::vector<PlacedStage>> placed =
        resolve(config, file.config().layers, machine.value().preferred_order());
    if (!placed) return placed.error();
    const Layout layout = layout_of(placed.value());
    const Position context = context_of(options, file.config());
    const std::int32_t kv_slots = context + kSpareSlots;

    SupervisorOptions supervision;
    supervision.catch_signals = false;  // the command's own Ctrl-C ends the answer (interrupt.hpp)
    Result<std::unique_ptr<Supervisor>> created = Supervisor::create(std::move(supervision));
    if (!created) return created.error();
    std::unique_ptr<Supervisor> supervisor = std::move(created).value();
    if (Status s = supervisor->start(
            children_of(layout, file, options, config, machine.value(), kv_slots));
        !s)
        return s.error();
    Result<std::vector<control::Hello>> hellos = supervisor->await_hellos();
    if (!hellos) return hellos.error();
    if (Status s = check_hellos(hellos.value(), layout); !s) return s.error();
    std::vector<std::vector<int>> cores;
    for (const PlacedStage& stage : layout.stages) cores.push_back(stage.cores);
    Result<Wiring> wiring =
        supervisor->wire(edges_of(layout, file.config().dim), choose_spin(machine.value(), cores));
    if (!wiring) return wiring.error();
    if (environment.stderr_is_terminal) print_placement(layout, hellos.value());
    return std::unique_ptr<Generator>{std::make_unique<PipelineGenerator>(
        std::move(supervisor), std::move(wiring).value(), layout, config, file.config(), context,
        kv_slots, std::move(hellos).value())};
}

}  // namespace paceline
