#include "launch/placement/gpu_plan.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <optional>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "launch/config/pipeline_checks.hpp"
#include "launch/placement/gpu_fill.hpp"
#include "launch/placement/gpu_groups.hpp"
#include "launch/placement/gpu_processes.hpp"

namespace paceline {
namespace {

/// Parts that the segments may be cut into, for each GPU: a second one fills what the others leave.
constexpr std::size_t kPartsOfAGpu = 2;

/// Stages that a planner may put on a GPU: segments, and drafts with a model.
bool computes(const PipelineConfig& config, const StageConfig& stage) {
    return is_segment(stage) || (config.draft && config.draft->computes());
}

/// A target that the file puts on the CPU stays there as a whole: CPUs and GPUs differ in bits.
bool target_stays(const PipelineConfig& config) {
    return std::any_of(config.stages.begin(), config.stages.end(), [](const StageConfig& stage) {
        return is_segment(stage) && stage.device_given && !stage.device.gpu;
    });
}

bool is_placed(const PipelineConfig& config, const StageConfig& stage) {
    if (!computes(config, stage)) return false;
    if (stage.device_given) return stage.device.gpu.has_value();
    return !is_segment(stage) || !target_stays(config);
}

StageConfig& stage_named(PipelineConfig& config, const std::string& name) {
    const auto found = std::find_if(config.stages.begin(), config.stages.end(),
                                    [&](const StageConfig& stage) { return stage.name == name; });
    PACE_CHECK(found != config.stages.end(), "a placed stage is one of the file's");
    return *found;
}

Status check_named_gpus(const PipelineConfig& config, const GpuRequest& request) {
    for (const StageConfig& stage : config.stages) {
        const auto bad = [&](const std::string& what) {
            return Error{Errc::BadArgument,
                         fmt::format("{}: [[stage]] \"{}\": {}", config.file, stage.name, what)};
        };
        const std::string key = fmt::format("device = \"{}\"", to_text(stage.device));
        const std::vector<int> named = stage.device.gpus();
        for (const int gpu : named) {
            const auto& gpus = request.gpus;
            if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) continue;
            return bad(key + (named.size() == 1 ? " is none" : " is not all") + " of the GPUs of " +
                       request.machine.source + " that may be used");
        }
        if (const auto problem = group_problem(request.machine, named))
            return bad(key + ": " + *problem);
        const int most = largest_group(request.machine, request.gpus);
        if (stage.tensor > most)
            return bad(
                fmt::format("tensor = {}: of the GPUs of {} that may be used at most {} are "
                            "of one kind and of one machine: tensor = {} is possible",
                            stage.tensor, request.machine.source, most, most));
    }
    return {};
}

/// A configuration whose segments have their layers, and what each stage takes of a GPU.
struct Sized {
    PipelineConfig config;
    Placement placement;
    std::vector<MemoryNeed> needs;
};

Result<Sized> size_on_gpus(PipelineConfig config,
                           const GpuRequest& request,
                           const SizeStages& size) {
    PipelineConfig anywhere = config;
    for (StageConfig& stage : anywhere.stages) {
        if (!is_placed(config, stage) || stage.device.gpu) continue;
        stage.device.gpu = request.gpus.front();
        // As many as share it, whichever they will be.
        stage.device.others.assign(request.gpus.begin() + 1, request.gpus.begin() + stage.tensor);
    }
    Result<Placement> placement = place(anywhere, request.layers, request.cores);
    if (!placement) return placement.error();
    for (const PlacedStage& placed : placement.value().stages) {
        if (placed.role == StageRole::Segment)
            stage_named(config, placed.name).layers = placed.layers;
    }
    std::vector<MemoryNeed> needs = size(placement.value());
    return Sized{std::move(config), std::move(placement).value(), std::move(needs)};
}

/// GPUs for the stages that say how many share them.
void choose_groups(Sized& sized, const GpuRequest& request) {
    std::map<int, std::uint64_t> held;
    const auto hold = [&](const Device& device, const MemoryNeed& need) {
        for (const auto& [gpu, share] : shares_by_gpu(device, need)) held[gpu] += share.all();
    };
    const auto each = [&](const auto& work) {
        for (std::size_t i = 0; i < sized.placement.stages.size(); ++i)
            work(stage_named(sized.config, sized.placement.stages[i].name), sized.needs[i]);
    };
    each([&](const StageConfig& stage, const MemoryNeed& need) { hold(stage.device, need); });
    each([&](StageConfig& stage, const MemoryNeed& need) {
        if (stage.tensor == 1 || stage.device.gpu || !is_placed(sized.config, stage)) return;
        const std::vector<int> group =
            choose_group(request.machine, request.gpus, stage.tensor, held);
        PACE_CHECK(!group.empty(), "a group of this size was possible");
        stage.device.gpu = group.front();
        stage.device.others.assign(group.begin() + 1, group.end());
        hold(stage.device, need);
    });
}

/// Stages that one process of the file holds move together.
std::vector<FillUnit> units_of(Sized& sized) {
    std::vector<FillUnit> units;
    std::map<std::string, std::size_t> by_process;
    for (std::size_t i = 0; i < sized.placement.stages.size(); ++i) {
        const PlacedStage& placed = sized.placement.stages[i];
        const StageConfig& stage = stage_named(sized.config, placed.name);
        if (!is_placed(sized.config, stage)) continue;
        std::size_t at = units.size();
        if (!stage.process.empty()) at = by_process.try_emplace(stage.process, at).first->second;
        if (at == units.size()) units.emplace_back();
        FillUnit& unit = units[at];
        unit.stages.push_back(i);
        unit.target = unit.target || is_segment(stage);
        if (!stage.device.gpu) unit.bytes += gpu_bytes(sized.needs[i]);
        for (const auto& [gpu, share] : shares_by_gpu(stage.device, sized.needs[i]))
            unit.named.push_back({gpu, share.all()});
    }
    return units;
}

std::uint64_t sum_of(const std::vector<FillUnit>& units) {
    std::uint64_t sum = 0;
    for (const FillUnit& unit : units) {
        sum += unit.bytes;
        for (const FillPart& part : unit.named) sum += part.bytes;
    }
    return sum;
}

std::string gigabytes(std::uint64_t bytes) {
    return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

Error refused(const Sized& sized,
              const std::vector<FillUnit>& units,
              const FillFailure& failure,
              const GpuRequest& request) {
    const FillUnit& unit = units[failure.unit];
    std::string stages;
    std::string groups;
    for (const std::size_t i : unit.stages) {
        stages += (stages.empty() ? "\"" : "\", \"") + sized.placement.stages[i].name;
        const auto& stage = *std::find_if(
            sized.config.stages.begin(), sized.config.stages.end(),
            [&](const StageConfig& one) { return one.name == sized.placement.stages[i].name; });
        if (stage.device.others.empty()) continue;
        groups = stage.tensor > 1 ? fmt::format(" (tensor = {})", stage.tensor)
                                  : fmt::format(" (device = \"{}\")", to_text(stage.device));
    }
    const MachineGpu& gpu = request.machine.gpus[static_cast<std::size_t>(failure.gpu)];
    std::uint64_t all = 0;
    for (const int index : request.gpus)
        all += room_of(request.machine.gpus[static_cast<std::size_t>(index)]);
    return {
        Errc::OutOfMemory,
        fmt::format("{}: [[stage]] {}\"{} needs {} on cuda:{} ({}), there are {}; all stages need "
                    "{}, the {} GPU(s) have {}. A smaller --dtype, a shorter context (-c) or "
                    "more GPUs help",
                    sized.config.file, stages, groups, gigabytes(failure.bytes), failure.gpu,
                    gpu.name, gigabytes(failure.left), gigabytes(sum_of(units)),
                    request.gpus.size(), gigabytes(all))};
}

/// How many parts each stage of the file is cut into: one more for the segment whose parts are the
/// largest. False if none can be cut.
bool cut_once_more(const PipelineConfig& config,
                   const std::vector<std::uint64_t>& bytes,
                   const std::vector<int>& layers,
                   std::vector<int>& parts) {
    std::optional<std::size_t> largest;
    const auto part_bytes = [&](std::size_t i) {
        return bytes[i] / static_cast<std::uint64_t>(parts[i]);
    };
    for (std::size_t i = 0; i < config.stages.size(); ++i) {
        const StageConfig& stage = config.stages[i];
        const bool whole = stage.device_given || !stage.process.empty();
        if (!is_segment(stage) || whole || parts[i] >= layers[i]) continue;
        if (!largest || part_bytes(i) > part_bytes(*largest)) largest = i;
    }
    if (largest) ++parts[*largest];
    return largest.has_value();
}

/// `config`, whose segments have their layers, with each cut into so many even parts.
PipelineConfig cut(const PipelineConfig& config, const std::vector<int>& parts) {
    PipelineConfig result = config;
    result.stages.clear();
    for (std::size_t i = 0; i < config.stages.size(); ++i) {
        const StageConfig& stage = config.stages[i];
        for (int part = 0; part < parts[i]; ++part) {
            StageConfig& one = result.stages.emplace_back(stage);
            if (parts[i] == 1) continue;
            const auto whole = std::get<LayerRange>(stage.layers);
            const int count = whole.last - whole.first;
            one.name = fmt::format("{}-{}", stage.name, part + 1);
            one.layers = LayerRange{whole.first + count * part / parts[i],
                                    whole.first + count * (part + 1) / parts[i]};
            one.exit = stage.exit && part + 1 == parts[i];
            one.final = stage.final && part + 1 == parts[i];
        }
    }
    return result;
}

std::vector<FillGpu> fill_gpus(const GpuRequest& request) {
    std::vector<FillGpu> gpus;
    for (const int index : request.gpus) {
        const MachineGpu& gpu = request.machine.gpus[static_cast<std::size_t>(index)];
        gpus.push_back({index, room_of(gpu)});
    }
    return gpus;
}

/// The devices of `units` written into the configuration, with processes and cores.
Result<GpuPlan> finished(Sized sized,
                         const std::vector<FillUnit>& units,
                         const std::vector<int>& gpus,
                         const GpuRequest& request,
                         const SizeStages& size) {
    PipelineConfig config = std::move(sized.config);
    for (std::size_t u = 0; u < units.size(); ++u) {
        for (const std::size_t i : units[u].stages) {
            Device& device = stage_named(config, sized.placement.stages[i].name).device;
            if (!device.gpu) device.gpu = gpus[u];
        }
    }
    share_processes(config);
    pin_near_gpus(config, request.machine, request.cores);
    if (Status s = check_pipeline(config); !s.ok()) return s.error();
    Result<Placement> placement = place(config, request.layers, request.cores);
    if (!placement) return placement.error();
    std::vector<MemoryNeed> needs = size(placement.value());
    return GpuPlan{std::move(config), std::move(placement).value(), std::move(needs)};
}

/// Bytes and layers of each stage of the file, in its order.
void sizes_in_file_order(const Sized& sized,
                         std::vector<std::uint64_t>& bytes,
                         std::vector<int>& layers) {
    for (const StageConfig& stage : sized.config.stages) {
        for (std::size_t i = 0; i < sized.needs.size(); ++i) {
            const PlacedStage& placed = sized.placement.stages[i];
            if (placed.name != stage.name) continue;
            bytes.push_back(gpu_bytes(sized.needs[i]));
            layers.push_back(placed.layers.last - placed.layers.first);
        }
    }
}

Result<GpuPlan> planned(const PipelineConfig& config,
                        const GpuRequest& request,
                        const SizeStages& size) {
    PACE_CHECK(!request.gpus.empty(), "a plan needs a GPU");
    if (Status s = check_named_gpus(config, request); !s.ok()) return s.error();
    Result<Sized> whole = size_on_gpus(config, request, size);
    if (!whole) return whole.error();
    std::vector<std::uint64_t> bytes;
    std::vector<int> layers;
    sizes_in_file_order(whole.value(), bytes, layers);
    std::vector<int> parts(bytes.size(), 1);
    std::optional<Error> why;
    std::uint64_t missing = 0;
    const std::size_t most =
        std::min<std::size_t>(kSegmentsMax, kPartsOfAGpu * request.gpus.size());
    for (;;) {
        PipelineConfig parted = cut(whole.value().config, parts);
        // Not every pipeline may have another segment before an exit (pipeline_checks.hpp).
        if (why && !check_pipeline(parted).ok()) return *why;
        Result<Sized> sized = size_on_gpus(std::move(parted), request, size);
        if (!sized) return sized.error();
        choose_groups(sized.value(), request);
        const std::vector<FillUnit> units = units_of(sized.value());
        const Fill fill = fill_in_order(units, fill_gpus(request));
        if (!fill.failure)
            return finished(std::move(sized).value(), units, fill.gpu_of, request, size);
        const auto segments = static_cast<std::size_t>(sized.value().config.segments());
        // With more parts than GPUs the sentence would name a crumb.
        const bool nearer = fill.failure->missing < missing && segments <= request.gpus.size();
        if (!why || nearer) {
            why = refused(sized.value(), units, *fill.failure, request);
            missing = fill.failure->missing;
        }
        if (segments >= most || !cut_once_more(whole.value().config, bytes, layers, parts))
            return *why;
    }
}

/// A larger group that the segments would fit, as a sentence; empty: there is none.
std::string larger_group_text(const PipelineConfig& config,
                              const GpuRequest& request,
                              const SizeStages& size) {
    const int most = std::min(request.kv_heads, largest_group(request.machine, request.gpus));
    for (int count = 2; count <= most; ++count) {
        PipelineConfig larger = config;
        bool changed = false;
        for (StageConfig& stage : larger.stages) {
            if (!is_segment(stage) || stage.device_given || stage.tensor >= count) continue;
            stage.tensor = count;
            changed = true;
        }
        if (changed && planned(larger, request, size).ok())
            return fmt::format("; with tensor = {} in the target's stages it fits", count);
    }
    return {};
}

}  // namespace

std::uint64_t room_of(const MachineGpu& gpu) {
    return gpu.memory_bytes - std::min(gpu.memory_bytes, kGpuContextBytes);
}

std::uint64_t gpu_bytes(const MemoryNeed& need) {
    return need.on_gpu ? need.weight_bytes + need.kv_bytes + need.workspace_bytes : 0;
}

Result<GpuPlan> plan_gpus(const PipelineConfig& config,
                          const GpuRequest& request,
                          const SizeStages& size) {
    Result<GpuPlan> plan = planned(config, request, size);
    if (plan.ok() || plan.error().code != Errc::OutOfMemory) return plan;
    Error error = plan.error();
    error.what += larger_group_text(config, request, size);
    return error;
}

}  // namespace paceline
