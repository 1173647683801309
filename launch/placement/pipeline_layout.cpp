#include "launch/placement/pipeline_layout.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>

#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

constexpr std::uint32_t kTensorSlots = 8;
constexpr std::uint32_t kTapSlots = 2;  // the newest counts
// Batches are all that travels from a segment to the next, and each has a tensor slot: more frames
// do not wait there, and those of a long prefill take 11 KB each.
constexpr std::uint32_t kBatchRingSlots = 16;
constexpr std::uint32_t kBatchUrgentSlots = 4;
static_assert(kBatchRingSlots - kBatchUrgentSlots >= kTensorSlots);

std::string layers_text(const PlacedStage& stage) {
    if (stage.role != StageRole::Segment) return "-";
    return fmt::format("{}..{}", stage.layers.first, stage.layers.last - 1);
}

Status check_vocabulary(const control::Hello& hello,
                        const std::string& name,
                        const control::Hello& first,
                        const std::string& first_name) {
    if (hello.vocab_size == first.vocab_size) return {};
    return Error{Errc::BadArgument,
                 fmt::format("stage {} has a vocabulary of {}, {} one of {}", name,
                             hello.vocab_size, first_name, first.vocab_size)};
}

Status check_segment(const control::Hello& hello,
                     const std::string& name,
                     const control::Hello& first,
                     const std::string& first_name) {
    if (hello.model_fingerprint != first.model_fingerprint) {
        return Error{Errc::BadArgument,
                     "stage " + name + " loaded other weights than " + first_name};
    }
    if (hello.equality_class != first.equality_class) {
        return Error{Errc::BadArgument, "stage " + name + " has the equality class \"" +
                                            hello.equality_class + "\", " + first_name + " has \"" +
                                            first.equality_class +
                                            "\": mixed classes do not give equal bits"};
    }
    return check_vocabulary(hello, name, first, first_name);
}

/// Segments whose exit gets prices: also the last one, if its heads look ahead.
std::vector<StageId> priced_exits(const Placement& placement, const PipelineConfig& config) {
    std::vector<StageId> exits = placement.exits();
    if (config.exit && config.exit->ahead > 0) exits.push_back(placement.verifier());
    return exits;
}

}  // namespace

EdgeSpec batch_edge(StageId from, int dim, std::uint32_t rows) {
    return {.from = from,
            .to = StageId{static_cast<std::uint16_t>(from.value + 1)},
            .ring_slots = kBatchRingSlots,
            .urgent_slots = kBatchUrgentSlots,
            .tensor_slots = kTensorSlots,
            .tensor_bytes = std::size_t{rows} * static_cast<std::size_t>(dim) * sizeof(float),
            .frame_bytes = frame_bytes_for(rows)};
}

EdgeSpec trunk_edge(StageId draft, StageId correct, std::uint64_t kv_row_bytes) {
    EdgeSpec edge{.from = draft, .to = correct};
    if (kv_row_bytes != 0) {
        edge.tensor_slots = kTensorSlots;
        edge.tensor_bytes = std::size_t{kVerifyRowsMax} * static_cast<std::size_t>(kv_row_bytes);
    }
    return edge;
}

EdgeSpec tap_edge(StageId segment, StageId draft, int layers, int dim) {
    return {.from = segment,
            .to = draft,
            .tensor_slots = kTapSlots,
            .tensor_bytes =
                static_cast<std::size_t>(layers) * static_cast<std::size_t>(dim) * sizeof(float)};
}

EdgeSpec feature_edge(StageId verifier, StageId draft, int dim, std::size_t states) {
    return {
        .from = verifier,
        .to = draft,
        .tensor_slots = kBatchPartsMax,
        .tensor_bytes = (kGammaMax + 1) * states * static_cast<std::size_t>(dim) * sizeof(float)};
}

std::vector<EdgeSpec> edges_of(const Placement& placement,
                               const PipelineConfig& config,
                               const EdgeSizes& sizes) {
    std::vector<EdgeSpec> edges;
    const auto add = [&edges](const EdgeSpec& edge) {
        const bool there = std::any_of(edges.begin(), edges.end(), [&](const EdgeSpec& other) {
            return other.from == edge.from && other.to == edge.to;
        });
        if (!there) edges.push_back(edge);
    };
    const StageId first{1};
    const StageId verifier = placement.verifier();
    for (StageId id = first; id < verifier; ++id.value) {
        EdgeSpec batches = batch_edge(id, sizes.dim, placement.stage(id).rows_max);
        const bool draws = config.draft && config.draft->growth.draws;
        batches.frame_bytes = frame_bytes_for(placement.stage(id).rows_max, draws);
        add(batches);
        add({.from = verifier, .to = id});
    }
    add({.from = verifier, .to = kConductor});
    const std::optional<StageId> draft = placement.draft();
    const std::optional<StageId> correct = placement.correct();
    // Before the edges of other purposes between the same stages: these have tensors.
    for (StageId id = first; draft && config.draft->is_tapped() && id <= verifier; ++id.value) {
        const LayerRange layers = placement.stage(id).layers;
        add(tap_edge(id, *draft, layers.last - layers.first, sizes.dim));
    }
    if (draft && config.draft->reads_features())
        add(feature_edge(verifier, *draft, sizes.dim, sizes.feature_states));
    if (draft && correct) {
        add(trunk_edge(*draft, *correct, sizes.draft_kv_row_bytes));
        add({.from = *correct, .to = *draft});  // the branches, which the draft goes on below
    }
    for (const std::optional<StageId>& stage : {draft, correct}) {
        if (!stage) continue;
        add({.from = *stage, .to = first});
        add({.from = verifier, .to = *stage});
        for (const StageId exit : placement.exits()) {
            if (config.exit_sends_candidates()) add({.from = exit, .to = *stage});
        }
    }
    for (const StageId exit : placement.exits()) {
        if (config.exit && config.exit->options.proposes && exit != first)
            add({.from = exit, .to = first});
    }
    // What time is worth goes to all who speculate.
    for (const std::optional<StageId>& stage : {draft, correct}) {
        if (stage) add({.from = first, .to = *stage});
    }
    for (const StageId exit : priced_exits(placement, config)) {
        if (exit != first) add({.from = first, .to = exit});
    }
    // Heads that look ahead propose from the verifier.
    if (config.exit && config.exit->ahead > 0 && verifier != first)
        add({.from = verifier, .to = first});
    for (const PlacedStage& stage : placement.stages) add({.from = kConductor, .to = stage.id});
    return edges;
}

ConductorPlan conductor_plan(const Placement& placement, const SupervisionConfig& supervision) {
    ConductorPlan plan;
    plan.verifier = placement.verifier();
    plan.recovery_limit = supervision.longest_recovery();
    // A stage that hangs or stops is replaced before a request is given up for it: a batch passes
    // through all segments, each of which may take its hang limit.
    const int hops = placement.segments() + 2;
    plan.progress.floor = supervision.hang_limit.count() == 0
                              ? Micros{0}
                              : Micros{supervision.hang_limit * hops + supervision.stop_grace};
    // A job that hung may take as long as a start (inherited_jobs()) before it counts as hung
    // again.
    if (supervision.hang_limit.count() != 0) {
        plan.draft_quarantine = {
            .clear_after = Micros{2 * supervision.hang_limit},
            .clear_silent_after = Micros{supervision.start_limit + 2 * supervision.hang_limit}};
    }
    const bool others_propose = placement.correct().has_value() || !placement.exits().empty();
    // The first segment sets everything going, so it learns of a request last.
    for (auto stage = placement.stages.rbegin(); stage != placement.stages.rend(); ++stage) {
        const auto process = std::find_if(
            placement.processes.begin(), placement.processes.end(), [&](const PlacedProcess& each) {
                return std::count(each.stages.begin(), each.stages.end(), stage->id) != 0;
            });
        plan.begin_to.push_back(
            {.id = stage->id,
             .essential = stage->on_death != OnDeath::RestartAlone,
             .apart = process->on_death == OnDeath::RestartAlone,
             .name = "stage '" + stage->name + "'",
             .home = process->id(),
             .proposes_alone = stage->id == placement.draft() && !others_propose});
    }
    return plan;
}

namespace {

std::vector<RetainedBy> retained_by(const Placement& placement, const CommonAssignment& common) {
    std::vector<RetainedBy> retained;
    for (const PlacedStage& stage : placement.stages) {
        if (stage.role != StageRole::Segment || stage.id == placement.verifier()) continue;
        const std::int32_t slots = retained_slots(stage, common.dim, common.kv_slots);
        if (slots == 0) continue;
        retained.push_back({.stage = stage.id,
                            .end = 2 * static_cast<std::uint32_t>(stage.layers.last),
                            .slots = slots});
    }
    return retained;
}

}  // namespace

StageAssignment assignment_of(const PlacedProcess& process,
                              const Placement& placement,
                              const PipelineConfig& config,
                              const CommonAssignment& common) {
    StageAssignment assignment;
    assignment.model = common.model;
    assignment.parts = common.parts;
    for (const StageId id : process.stages) {
        const PlacedStage& stage = placement.stage(id);
        assignment.stages.push_back(
            {stage.id, stage.role, stage.layers, stage.exit, stage.device, stage.rows_max});
    }
    assignment.cores = process.cores;
    assignment.threads = process.threads;
    assignment.usable_cores = process.may_spin ? common.usable_cores : 0;
    assignment.shares_cores = !process.may_spin;
    assignment.kv_slots = common.kv_slots;
    assignment.segments = placement.segments();
    assignment.draft_stage = placement.draft().value_or(StageId{0}).value;
    assignment.correct_stage = placement.correct().value_or(StageId{0}).value;
    if (config.exit_sends_candidates() && !placement.exits().empty())
        assignment.candidate_stage = placement.exits().front().value;
    assignment.exit_stages = priced_exits(placement, config);
    assignment.retained = retained_by(placement, common);
    assignment.dispatch = dispatch_options(config);
    assignment.dispatch.prefill_rows = placement.prefill_rows;
    assignment.draft = config.draft.value_or(DraftConfig{});
    assignment.exit = config.exit;
    assignment.self_draft = config.self_draft;
    assignment.verbose = common.verbose;
    assignment.tensors_on_device =
        std::any_of(common.edges.begin(), common.edges.end(), [&](const EdgeSpec& edge) {
            return edge.transport != Transport::Host &&
                   (process.hosts(edge.from) || process.hosts(edge.to));
        });
    return assignment;
}

std::vector<ProcessSpec> children_of(const Placement& placement,
                                     const PipelineConfig& config,
                                     const CommonAssignment& common) {
    std::vector<ProcessSpec> children;
    for (const PlacedProcess& process : placement.processes) {
        children.push_back({.id = process.id(),
                            .actors = process.stages,
                            .name = process.name,
                            .cores = process.cores,
                            .payload = encode(assignment_of(process, placement, config, common)),
                            .on_death = process.on_death,
                            .node = static_cast<std::uint32_t>(process.machine)});
    }
    return children;
}

SupervisorOptions supervisor_options(const SupervisionConfig& supervision) {
    SupervisorOptions options;
    options.start_limit = supervision.start_limit;
    options.shutdown_grace = supervision.shutdown_grace;
    options.restarts.restarts_max = supervision.restarts_max;
    options.restarts.period = supervision.restart_period;
    options.restarts.machine_wait = supervision.machine_wait;
    options.restarts.backoff.assign(supervision.backoff.begin(), supervision.backoff.end());
    options.hang_limit = supervision.hang_limit;
    options.stop_grace = supervision.stop_grace;
    options.link_limit = supervision.link_limit;
    if (supervision.checksums) options.checksums = WiringPlan::Checksums::Payloads;
    return options;
}

Status check_model(const std::vector<control::Hello>& hellos,
                   const Placement& placement,
                   std::uint64_t fingerprint) {
    const std::string own = std::to_string(fingerprint);
    for (std::size_t i = 0; i < hellos.size(); ++i) {
        const std::string& loaded = hellos[i].model_fingerprint;
        if (loaded.empty() || loaded == own) continue;
        return Error{Errc::BadArgument, "stage " + placement.processes[i].name +
                                            " loaded another model (fingerprint " + loaded +
                                            ") than this command has (" + own + ")"};
    }
    return {};
}

Status check_hellos(const std::vector<control::Hello>& hellos, const Placement& placement) {
    const auto has_segment = [&](const PlacedProcess& process) {
        return placement.stage(process.id()).role == StageRole::Segment;
    };
    const auto measure = static_cast<std::size_t>(
        std::find_if(placement.processes.begin(), placement.processes.end(), has_segment) -
        placement.processes.begin());
    const control::Hello& first = hellos[measure];
    const std::string& first_name = placement.processes[measure].name;
    for (std::size_t i = 0; i < hellos.size(); ++i) {
        const PlacedProcess& process = placement.processes[i];
        Status fits = has_segment(process)
                          ? check_segment(hellos[i], process.name, first, first_name)
                          : check_vocabulary(hellos[i], process.name, first, first_name);
        if (!fits.ok()) return fits;
    }
    return {};
}

std::string placement_table(const Placement& placement,
                            const std::vector<pid_t>& pids,
                            const std::vector<MemoryNeed>& needs) {
    std::string text;
    const auto add = [&text](const char* stage, const std::string& process, const char* role,
                             const std::string& device, const std::string& layers,
                             const std::string& cores, const std::string& weights,
                             const std::string& kv) {
        char line[256];
        std::snprintf(line, sizeof line, "%-14s %-12s %-12s %-7s %-7s %-8s %10s %10s\n", stage,
                      process.c_str(), role, device.c_str(), layers.c_str(), cores.c_str(),
                      weights.c_str(), kv.c_str());
        text += line;
    };
    const auto megabytes = [](std::uint64_t bytes) {
        char number[32];
        std::snprintf(number, sizeof number, "%.1f MB", static_cast<double>(bytes) / 1e6);
        return std::string{bytes == 0 ? "-" : number};
    };
    add("stage", "process", "role", "device", "layers", "cores", "weights", "kv");
    for (std::size_t p = 0; p < placement.processes.size(); ++p) {
        const PlacedProcess& process = placement.processes[p];
        // News and logs call a shared process by its own name.
        // A process of another machine has a number there alone.
        const std::string pid = process.machine == 0 ? std::to_string(pids[p]) : "@" + process.node;
        const std::string title = process.stages.size() > 1 ? process.name + "[" + pid + "]" : pid;
        for (const StageId id : process.stages) {
            const PlacedStage& stage = placement.stage(id);
            const MemoryNeed& need = needs[id.value - std::size_t{1}];
            add(stage.name.c_str(), title, placement.role_text(id), to_text(stage.device),
                layers_text(stage), format_core_list(process.cores), megabytes(need.weight_bytes),
                megabytes(need.kv_bytes));
        }
    }
    return text;
}

}  // namespace paceline
