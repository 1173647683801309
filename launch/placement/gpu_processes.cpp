#include "launch/placement/gpu_processes.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <set>
#include <string>

namespace paceline {
namespace {

constexpr std::size_t kCoresOfAProcess = 4;

std::string process_of(const StageConfig& stage) {
    return stage.process.empty() ? stage.name : stage.process;
}

using Members = std::vector<StageConfig*>;

/// Each GPU that has a stage, and the lowest one of those that are joined to it by stages on
/// several.
std::map<int, int> joined_gpus(const PipelineConfig& config) {
    std::map<int, int> first;
    for (const StageConfig& stage : config.stages) {
        for (const int gpu : stage.device.gpus()) first.emplace(gpu, gpu);
    }
    for (const StageConfig& stage : config.stages) {
        for (const int gpu : stage.device.gpus()) {
            const int a = first.at(*stage.device.gpu);
            const int b = first.at(gpu);
            for (auto& [each, of] : first) {
                if (of == a || of == b) of = std::min(a, b);
            }
        }
    }
    return first;
}

}  // namespace

void share_processes(PipelineConfig& config) {
    std::map<int, Members> on_gpus;  // by the first of the GPUs that stages join
    for (const auto& [gpu, first] : joined_gpus(config)) {
        for (StageConfig& stage : config.stages) {
            if (stage.device.gpu == gpu) on_gpus[first].push_back(&stage);
        }
    }
    for (const auto& [gpu, members] : on_gpus) {
        const std::string first = process_of(*members.front());
        const bool one = std::all_of(members.begin(), members.end(), [&](const StageConfig* stage) {
            return process_of(*stage) == first;
        });
        if (one) continue;
        for (StageConfig* stage : members) stage->process = fmt::format("gpu{}", gpu);
    }
}

void pin_near_gpus(PipelineConfig& config,
                   const GpuMachine& machine,
                   const std::vector<int>& usable) {
    std::map<std::string, Members> processes;
    std::set<std::string> others;
    for (StageConfig& stage : config.stages) {
        if (stage.device.gpu) {
            processes[process_of(stage)].push_back(&stage);
        } else {
            others.insert(process_of(stage));
        }
    }
    const std::size_t left_over = others.size() + 1;  // the conductor's
    std::map<std::vector<int>, std::vector<Members>> by_node;
    for (const auto& [name, members] : processes) {
        const bool named = std::any_of(
            members.begin(), members.end(),
            [](const StageConfig* stage) { return !stage->cores.empty() || stage->threads != 0; });
        if (named) continue;
        const auto gpu = static_cast<std::size_t>(*members.front()->device.gpu);
        std::vector<int> near;
        for (const int core : machine.gpus[gpu].near_cores) {
            if (std::find(usable.begin(), usable.end(), core) != usable.end()) near.push_back(core);
        }
        by_node[near].push_back(members);
    }
    for (const auto& [cores, sharers] : by_node) {
        const std::size_t free = cores.size() - std::min(cores.size(), left_over);
        const std::size_t share = std::min(kCoresOfAProcess, free / sharers.size());
        if (share == 0) continue;
        for (std::size_t i = 0; i < sharers.size(); ++i) {
            const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(i * share);
            sharers[i].front()->cores.assign(begin, begin + static_cast<std::ptrdiff_t>(share));
        }
    }
}

}  // namespace paceline
