#include "launch/config/methods.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "launch/base/nearest_word.hpp"
#include "launch/base/text_input.hpp"
#include "launch/config/pipeline_checks.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

namespace {

constexpr auto kMethods = std::to_array<Method>({
#include "launch/configs.inc"
});

/// Also "plain". Errors: BadArgument with the name that was probably meant.
Result<Method> method_of(std::string_view name) {
    const std::string_view own = name == kPlainMethod ? "autoregressive" : name;
    std::vector<std::string_view> known{"plain"};
    for (const Method& method : kMethods) {
        if (method.name == own) return method;
        known.push_back(method.name);
    }
    return Error{Errc::BadArgument,
                 "--method: '" + std::string{name} + "' is not a method" + known_text(name, known)};
}

constexpr std::string_view kPlainSummary =
    "One token after the other, in this process, without stages: the default. The fastest where "
    "nothing "
    "predicts the text and no second device helps.";

/// A line of the table; words that do not fit it go on below the summary.
std::string entry(std::string_view name, std::string_view summary, std::size_t name_width) {
    constexpr std::size_t kColumns = 100;
    const std::size_t indent = name_width + 2;
    std::string text{name};
    text.resize(indent, ' ');
    std::size_t column = indent;
    while (!summary.empty()) {
        const std::string_view word = summary.substr(0, summary.find(' '));
        summary.remove_prefix(std::min(word.size() + 1, summary.size()));
        if (column > indent && column + 1 + word.size() > kColumns) {
            text += '\n' + std::string(indent, ' ');
            column = indent;
        } else if (column > indent) {
            text += ' ';
            ++column;
        }
        text += word;
        column += word.size();
    }
    return text + '\n';
}

}  // namespace

std::span<const Method> methods() {
    return kMethods;
}

Result<PipelineConfig> method_config(std::string_view name) {
    const Result<Method> method = method_of(name);
    if (!method) return method.error();
    return parse_pipeline_config(method.value().text,
                                 "configs/" + std::string{method.value().name} + ".toml");
}

Result<ConfigSource> config_source(const std::string& config_file, const std::string& method) {
    if (!config_file.empty()) {
        Result<std::string> text = read_file(config_file, kTomlBytesMax);
        if (!text) return text.error();
        return ConfigSource{std::move(text).value(), config_file};
    }
    const Result<Method> known = method_of(method);
    if (!known) return known.error();
    return ConfigSource{std::string{known.value().text}, "method " + method};
}

std::string methods_table() {
    std::size_t width = 0;
    for (const Method& method : kMethods) width = std::max(width, method.name.size());
    std::string text = entry("plain", kPlainSummary, width);
    for (const Method& method : kMethods) text += entry(method.name, method.summary, width);
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
