#include "launch/placement/node_shares.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <string>

namespace paceline {
namespace {

std::string name_of(std::size_t machine, const std::vector<OtherMachine>& others) {
    return machine == 0 ? std::string{} : others[machine - 1].name;
}

}  // namespace

Result<PipelineConfig> share_nodes(PipelineConfig config, const std::vector<OtherMachine>& others) {
    const bool named = std::any_of(config.stages.begin(), config.stages.end(),
                                   [](const StageConfig& stage) { return !stage.node.empty(); });
    if (others.empty() || named) return config;
    const auto segments = static_cast<std::size_t>(config.segments());
    const std::size_t machines = others.size() + 1;
    const bool drafts = config.stage_of(StageRole::Draft) != nullptr;
    // A draft computes while the target does: a machine of its own is worth more than none.
    const bool apart = drafts && segments + 1 == machines;
    if (segments < machines && !apart) {
        return Error{
            Errc::BadArgument,
            fmt::format("{}: {} machines are more than its {} segment{} can use; fewer machines "
                        "(--node, --nodes of the starter), or a method with more segments",
                        config.file, machines, segments, segments == 1 ? "" : "s")};
    }
    const std::size_t shares = apart ? machines - 1 : machines;
    std::map<std::string, std::string> by_process;
    std::size_t segment = 0;
    for (StageConfig& stage : config.stages) {
        if (!is_segment(stage)) continue;
        stage.node = name_of(segment++ * shares / segments, others);
        if (stage.process.empty()) continue;
        stage.node = by_process.try_emplace(stage.process, stage.node).first->second;
    }
    for (StageConfig& stage : config.stages) {
        if (is_segment(stage)) continue;
        stage.node = apart ? name_of(machines - 1, others) : std::string{};
        const auto known = by_process.find(stage.process);
        if (!stage.process.empty() && known != by_process.end()) stage.node = known->second;
    }
    return config;
}

}  // namespace paceline
