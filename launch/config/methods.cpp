#include "launch/config/methods.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "launch/base/nearest_word.hpp"
#include "launch/config/pipeline_checks.hpp"

namespace paceline {

namespace {

constexpr auto kMethods = std::to_array<Method>({
#include "launch/configs.inc"
});

const Method* find(std::string_view name) {
    if (name == "plain") name = "autoregressive";
    const auto* const found = std::find_if(kMethods.begin(), kMethods.end(),
                                           [&](const Method& m) { return m.name == name; });
    return found == kMethods.end() ? nullptr : found;
}

}  // namespace

std::span<const Method> methods() {
    return kMethods;
}

Result<PipelineConfig> method_config(std::string_view name) {
    if (const Method* method = find(name)) {
        return parse_pipeline_config(method->text,
                                     "configs/" + std::string{method->name} + ".toml");
    }
    std::vector<std::string_view> known{"plain"};
    for (const Method& method : kMethods) known.push_back(method.name);
    std::string what = "--method: '" + std::string{name} + "' is no method";
    const std::string_view meant = nearest_word(name, known);
    if (!meant.empty()) what += ", did you mean '" + std::string{meant} + "'?";
    what += " (known:";
    for (std::size_t i = 0; i < known.size(); ++i)
        what += (i == 0 ? " " : ", ") + std::string{known[i]};
    return Error{Errc::BadArgument, what + ")"};
}

std::string methods_table() {
    std::string text;
    std::size_t width = 0;
    for (const Method& method : kMethods) width = std::max(width, method.name.size());
    for (const Method& method : kMethods) {
        text += std::string{method.name} + std::string(width - method.name.size() + 2, ' ');
        text += std::string{method.summary} + "\n";
    }
    return text;
}

Status use_draft_model(PipelineConfig& config, const std::string& path) {
    if (!config.draft) {
        return Error{Errc::BadArgument,
                     "--draft-model: " + config.file + " has no stage with role = \"draft\""};
    }
    DraftConfig& draft = *config.draft;
    draft.lookup = draft.lookup && draft.computes();  // where lookup only stood in for a model
    draft.model = DraftModelKind::File;
    draft.model_file = path;
    return {};
}

Status use_device(PipelineConfig& config, const Device& device) {
    for (StageConfig& stage : config.stages) {
        stage.device = device;
        if (config.stages.size() == 1) continue;
        stage.process = "gpu";
        stage.threads = 0;
    }
    return check_pipeline(config);
}

Device target_device(const PipelineConfig& config) {
    const StageConfig* segment = config.stage_of(StageRole::Segment);
    return segment == nullptr ? Device{} : segment->device;
}

}  // namespace paceline
