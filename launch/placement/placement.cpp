#include "launch/placement/placement.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>

#include "ipc/base/check.hpp"
#include "ipc/wire/control.hpp"
#include "launch/placement/core_shares.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

Error placement_error(const PipelineConfig& config, const std::string& what) {
    return Error{Errc::BadArgument, config.file + ": " + what};
}

/// The layers of each segment, in order, before they are checked against each other.
LayerRange concrete_layers(const LayerChoice& choice, int layers, int index, int segments) {
    if (const auto* range = std::get_if<LayerRange>(&choice)) return *range;
    if (const auto* parts = std::get_if<LayerFractions>(&choice)) {
        return {static_cast<int>(std::lround(parts->first * layers)),
                static_cast<int>(std::lround(parts->last * layers))};
    }
    return {layers * index / segments, layers * (index + 1) / segments};
}

std::string range_text(LayerRange range) {
    return fmt::format("[{}, {}]", range.first, range.last);
}

Status check_cover(const PipelineConfig& config,
                   const std::vector<PlacedStage>& stages,
                   int layers) {
    int next = 0;
    std::string before;
    for (const PlacedStage& stage : stages) {
        if (stage.role != StageRole::Segment) continue;
        const std::string who =
            "[[stage]] \"" + stage.name + "\": layers " + range_text(stage.layers) + " ";
        if (stage.layers.last > layers) {
            return placement_error(config,
                                   fmt::format("{}end past the model's {} layers", who, layers));
        }
        if (stage.layers.first >= stage.layers.last) {
            return placement_error(
                config, fmt::format("{}are empty for a model of {} layers", who, layers));
        }
        if (stage.layers.first != next) {
            std::string fault = "do not start at layer 0";
            if (!before.empty()) {
                fault = stage.layers.first > next ? "leave a gap after " : "overlap with ";
                fault += before;
            }
            return placement_error(config, who + fault);
        }
        next = stage.layers.last;
        before = "\"";
        before.append(stage.name).append("\", which ends at layer ").append(std::to_string(next));
    }
    if (next != layers) {
        return placement_error(
            config,
            fmt::format("the segments end at layer {}, the model has {} layers", next, layers));
    }
    return {};
}

Status check_automatic(const PipelineConfig& config) {
    const auto segments = std::count_if(config.stages.begin(), config.stages.end(), is_segment);
    const auto automatic =
        std::count_if(config.stages.begin(), config.stages.end(), [](const StageConfig& s) {
            return is_segment(s) && std::holds_alternative<AutoLayers>(s.layers);
        });
    if (automatic == 0 || automatic == segments) return {};
    return placement_error(
        config,
        fmt::format("layers is \"auto\" for {} of {} segments; give it for all of them or for none",
                    automatic, segments));
}

/// Segments in the order of their layers, then the draft, then correct.
std::vector<const StageConfig*> in_id_order(const PipelineConfig& config) {
    std::vector<const StageConfig*> stages;
    for (const StageRole role : {StageRole::Segment, StageRole::Draft, StageRole::Correct}) {
        for (const StageConfig& stage : config.stages) {
            if (stage.role == role) stages.push_back(&stage);
        }
    }
    return stages;
}

/// The one value that the members of a process name for it, `none` if none does.
template <class T, class Get>
Result<T> common(const PipelineConfig& config,
                 const std::vector<const StageConfig*>& members,
                 const char* key,
                 const T& none,
                 Get get) {
    const StageConfig* first = nullptr;
    for (const StageConfig* member : members) {
        if (get(*member) == none) continue;
        if (first == nullptr) first = member;
        if (get(*member) == get(*first)) continue;
        return placement_error(config, "[[stage]] \"" + member->name + "\": " + key +
                                           " differs from that of \"" + first->name +
                                           "\", with which it shares the process \"" +
                                           member->process + "\"; give it once");
    }
    return first == nullptr ? none : get(*first);
}

/// What the members of a process ask for; `group` is the caller's to fill.
Result<CoreDemand> demand_of(const PipelineConfig& config,
                             const std::vector<const StageConfig*>& members,
                             const std::vector<int>& usable_cores) {
    Result<std::vector<int>> cores = common(config, members, "cores", std::vector<int>{},
                                            [](const StageConfig& s) { return s.cores; });
    if (!cores) return cores.error();
    const Result<int> threads =
        common(config, members, "threads", 0, [](const StageConfig& s) { return s.threads; });
    if (!threads) return threads.error();
    for (const int core : cores.value()) {
        if (std::find(usable_cores.begin(), usable_cores.end(), core) != usable_cores.end())
            continue;
        std::string usable;
        for (const int c : usable_cores) {
            if (!usable.empty()) usable += ", ";
            usable += std::to_string(c);
        }
        std::string fault = "[[stage]] \"" + members.front()->name + "\": ";
        fault.append("cores names core ").append(std::to_string(core));
        fault.append(", this process may use ").append(usable);
        return placement_error(config, fault);
    }
    return CoreDemand{.threads = threads.value(), .named = std::move(cores).value()};
}

/// Whether segments run at the same time: there are batches beside the one that holds the root.
bool segments_overlap(const PipelineConfig& config) {
    const bool candidates =
        config.draft || (config.exit && (config.exit->options.proposes || config.exit->ahead > 0));
    return candidates && dispatch_options(config).batches_in_flight_max > 1;
}

/// Whether the draft computes while the target does.
bool draft_overlaps(const PipelineConfig& config) {
    return config.exit_sends_candidates() || config.draft->growth.pace != DraftPace::Sequential ||
           dispatch_options(config).start != StartRule::Sequential;
}

/// How many models compute in a process on the CPU, each with threads of its own.
int models_in(const PipelineConfig& config,
              const Placement& placement,
              const PlacedProcess& process) {
    const bool model = config.draft && config.draft->computes();
    return static_cast<int>(
        std::count_if(process.stages.begin(), process.stages.end(), [&](StageId id) {
            const PlacedStage& stage = placement.stage(id);
            return !stage.device.gpu && (model || stage.role == StageRole::Segment);
        }));
}

/// Which stages share cores: group 0 is the target, or its first process.
void choose_lanes(const PipelineConfig& config,
                  const Placement& placement,
                  std::vector<CoreDemand>& demands) {
    const bool model = config.draft && config.draft->computes();
    bool target_on_cpu = false;
    int group = 0;
    for (std::size_t i = 0; i < demands.size(); ++i) {
        const PlacedProcess& process = placement.processes[i];
        const bool target = placement.stage(process.id()).role == StageRole::Segment;
        const bool on_cpu = models_in(config, placement, process) > 0;
        if (target) {
            demands[i].group = group;
            demands[i].modest = !on_cpu;  // one core feeds a GPU
            target_on_cpu = target_on_cpu || on_cpu;
            if (segments_overlap(config)) ++group;
        } else if (model) {
            demands[i].modest = !on_cpu || (target_on_cpu && draft_overlaps(config));
            demands[i].group = draft_overlaps(config) ? ++group : 0;
        }
    }
}

Status give_cores(const PipelineConfig& config,
                  std::vector<CoreDemand>& demands,
                  const std::vector<std::vector<int>>& cores_of,
                  Placement& placement) {
    choose_lanes(config, placement, demands);
    const auto [shares, shared] = share_cores_by_machine(demands, cores_of);
    for (std::size_t i = 0; i < demands.size(); ++i) {
        PlacedProcess& process = placement.processes[i];
        process.cores = shares[i];
        const int count = static_cast<int>(process.cores.size());
        const int models = models_in(config, placement, process);
        process.may_spin = !shared[i] && models <= 1;
        // A draft that looks up n-grams, or a GPU, has work for one thread only.
        process.threads = models == 0 ? 1 : count;
        if (demands[i].threads != 0) process.threads = demands[i].threads;
        if (process.threads <= count) continue;
        return placement_error(
            config, fmt::format("[[stage]] \"{}\": threads {} is more than its {} cores",
                                placement.stage(process.id()).name, process.threads, count));
    }
    return {};
}

int gravity(OnDeath policy) {
    switch (policy) {
        case OnDeath::RestartAlone:
            return 0;
        case OnDeath::RebuildChain:
            return 1;
        case OnDeath::StopRun:
            break;
    }
    return 2;
}

/// The machine that the members of a process name; 0: the conductor's.
Result<std::size_t> machine_of(const PipelineConfig& config,
                               const std::vector<const StageConfig*>& members,
                               const std::vector<OtherMachine>& others) {
    const Result<std::string> name =
        common(config, members, "node", std::string{}, [](const StageConfig& s) { return s.node; });
    if (!name) return name.error();
    if (name.value().empty()) return std::size_t{0};
    std::string known;
    for (std::size_t i = 0; i < others.size(); ++i) {
        if (others[i].name == name.value()) return i + 1;
        known += (known.empty() ? "" : ", ") + others[i].name;
    }
    const std::string there = others.empty() ? "this run has one machine (--meet finds others)"
                                             : "the other machines are: " + known;
    return placement_error(config, "[[stage]] \"" + members.front()->name + "\": node = \"" +
                                       name.value() + "\" is not there; " + there);
}

/// The process that hosts `stages[index]`, if it is the first one of it, and what it asks for.
Result<std::optional<PlacedProcess>> place_process(const PipelineConfig& config,
                                                   const std::vector<const StageConfig*>& stages,
                                                   std::size_t index,
                                                   const std::vector<OtherMachine>& others,
                                                   const std::vector<std::vector<int>>& cores_of,
                                                   std::vector<CoreDemand>& demands) {
    const StageConfig& first = *stages[index];
    std::vector<const StageConfig*> members;
    PlacedProcess process;
    process.name = first.process.empty() ? first.name : first.process;
    process.on_death = first.on_death;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        const StageConfig& stage = *stages[i];
        const bool shares = !first.process.empty() && stage.process == first.process;
        if (i != index && !shares) continue;
        if (i < index) return std::optional<PlacedProcess>{};  // came with that one
        members.push_back(&stage);
        process.stages.push_back(StageId{static_cast<std::uint16_t>(i + 1)});
        if (gravity(stage.on_death) > gravity(process.on_death)) process.on_death = stage.on_death;
    }
    if (members.size() > control::kActorsMax) {
        return placement_error(
            config, fmt::format("process = \"{}\" is named by {} stages, expected at most {}",
                                process.name, members.size(), control::kActorsMax));
    }
    const Result<std::size_t> machine = machine_of(config, members, others);
    if (!machine) return machine.error();
    process.machine = machine.value();
    if (process.machine != 0) process.node = others[process.machine - 1].name;
    Result<CoreDemand> demand = demand_of(config, members, cores_of[process.machine]);
    if (!demand) return demand.error();
    demand.value().machine = process.machine;
    demands.push_back(std::move(demand).value());
    return std::optional{std::move(process)};
}

/// A GPU reads its weights once for all rows of a batch; a CPU is busy with 64 rows already, and
/// other requests wait for the rest of a longer batch.
void choose_rows(const ScheduleConfig& schedule, Placement& placement) {
    const auto rows_on = [&schedule](bool gpu) {
        if (schedule.prefill_given) return schedule.options.prefill_rows;
        return gpu ? kBatchRowsMax : kVerifyRowsMax;
    };
    const bool gpus =
        std::all_of(placement.stages.begin(), placement.stages.end(), [](const PlacedStage& stage) {
            return stage.role != StageRole::Segment || stage.device.gpu;
        });
    placement.prefill_rows = rows_on(gpus);
    for (PlacedStage& stage : placement.stages) {
        const bool gpu = stage.role == StageRole::Segment ? gpus : stage.device.gpu.has_value();
        stage.rows_max = std::max(rows_on(gpu), kVerifyRowsMax);
    }
}

}  // namespace

const PlacedStage& Placement::stage(StageId id) const {
    PACE_CHECK(id.value >= 1 && id.value <= stages.size(), "a stage of the pipeline");
    return stages[id.value - std::size_t{1}];
}

bool PlacedProcess::hosts(StageId stage) const {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

const PlacedProcess& Placement::process_of(StageId id) const {
    const auto found =
        std::find_if(processes.begin(), processes.end(),
                     [id](const PlacedProcess& process) { return process.hosts(id); });
    PACE_CHECK(found != processes.end(), "a placed stage has a process");
    return *found;
}

int Placement::segments() const {
    return static_cast<int>(std::count_if(stages.begin(), stages.end(), [](const PlacedStage& s) {
        return s.role == StageRole::Segment;
    }));
}

StageId Placement::verifier() const {
    return StageId{static_cast<std::uint16_t>(segments())};
}

namespace {

std::optional<StageId> with_role(const Placement& placement, StageRole role) {
    for (const PlacedStage& stage : placement.stages) {
        if (stage.role == role) return stage.id;
    }
    return std::nullopt;
}

}  // namespace

std::optional<StageId> Placement::draft() const {
    return with_role(*this, StageRole::Draft);
}

std::optional<StageId> Placement::correct() const {
    return with_role(*this, StageRole::Correct);
}

std::vector<StageId> Placement::exits() const {
    std::vector<StageId> ids;
    for (const PlacedStage& placed : stages) {
        if (placed.exit) ids.push_back(placed.id);
    }
    return ids;
}

const char* Placement::role_text(StageId id) const {
    const PlacedStage& placed = stage(id);
    if (placed.role == StageRole::Draft) return "draft";
    if (placed.role == StageRole::Correct) return "correct";
    if (placed.exit) return "early-verify";
    return id == verifier() && !exits().empty() ? "final-verify" : "segment";
}

Result<Placement> place(const PipelineConfig& config,
                        int layers,
                        const std::vector<int>& usable_cores,
                        const std::vector<OtherMachine>& others) {
    PACE_CHECK(layers > 0 && !usable_cores.empty(), "a model has layers, a process has a core");
    if (Status s = check_automatic(config); !s.ok()) return s.error();
    const std::vector<const StageConfig*> stages = in_id_order(config);
    const auto segments =
        static_cast<int>(std::count_if(config.stages.begin(), config.stages.end(), is_segment));

    std::vector<std::vector<int>> cores_of{usable_cores};
    for (const OtherMachine& other : others) {
        cores_of.emplace_back(static_cast<std::size_t>(std::max(1, other.cores)));
        std::iota(cores_of.back().begin(), cores_of.back().end(), 0);
    }
    Placement placement;
    std::vector<CoreDemand> demands;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        const StageConfig& stage = *stages[i];
        PlacedStage& placed = placement.stages.emplace_back();
        placed.id = StageId{static_cast<std::uint16_t>(i + 1)};
        placed.name = stage.name;
        placed.role = stage.role;
        placed.exit = stage.exit;
        placed.device = stage.device;
        placed.on_death = stage.on_death;
        if (is_segment(stage) && static_cast<int>(i) + 1 < segments)
            placed.retain_mb = stage.retain_mb;
        if (is_segment(stage)) {
            placed.layers = concrete_layers(stage.layers, layers, static_cast<int>(i), segments);
        }
        Result<std::optional<PlacedProcess>> process =
            place_process(config, stages, i, others, cores_of, demands);
        if (!process) return process.error();
        if (process.value()) placement.processes.push_back(*std::move(process).value());
    }
    if (Status s = check_cover(config, placement.stages, layers); !s.ok()) return s.error();
    if (Status s = give_cores(config, demands, cores_of, placement); !s.ok()) return s.error();
    choose_rows(config.schedule, placement);
    return placement;
}

std::string too_few_cores_text(const PipelineConfig& config,
                               const Placement& placement,
                               int cores) {
    const bool draft_computes = config.draft && config.draft->computes();
    const auto computes = [&](StageId id) {
        const PlacedStage& stage = placement.stage(id);
        return !stage.device.gpu && (stage.role == StageRole::Segment || draft_computes);
    };
    const auto count = static_cast<int>(std::count_if(
        placement.processes.begin(), placement.processes.end(), [&](const PlacedProcess& process) {
            return std::any_of(process.stages.begin(), process.stages.end(), computes);
        }));
    if (count <= cores) return "";
    return fmt::format(
        "{} is made for a device per process; {} processes compute on {} core{} here, where plain "
        "decoding is often faster (--figures --baseline compares)\n",
        config.name, count, cores, cores == 1 ? "" : "s");
}

}  // namespace paceline
