#include "launch/config/config_text.hpp"

#include <vector>

#include "launch/config/field.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {
namespace {

/// The keys of a table in their order.
template <class Config>
std::vector<std::string_view> keys_of() {
    Config unused{};
    std::vector<std::string_view> keys;
    for (const Field& field : fields_of(unused)) keys.push_back(field.key);
    return keys;
}

std::string lines_of(const TomlTable& table, const std::vector<std::string_view>& keys) {
    std::string text;
    for (const std::string_view key : keys) {
        if (table.has(key)) text.append(key).append(" = ").append(table.text(key)).append("\n");
    }
    return text;
}

/// A table that `root` may have, with its header.
template <class Config>
std::string table_text(const TomlTable& root, std::string_view key) {
    if (!root.has(key)) return {};
    return "\n[" + std::string{key} + "]\n" + lines_of(root.table(key).value(), keys_of<Config>());
}

}  // namespace

Result<std::string> config_text(const ConfigSource& source) {
    if (const Result<PipelineConfig> checked = parse_pipeline_config(source); !checked)
        return checked.error();
    const TomlTable root = read_tables(source).value();
    std::string text = table_text<PipelineConfig>(root, "pipeline");
    const std::vector<TomlTable> stages = root.tables("stage").value();
    for (const TomlTable& stage : stages)
        text += "\n[[stage]]\n" + lines_of(stage, keys_of<StageConfig>());
    text += table_text<DraftConfig>(root, "draft") +
            table_text<SelfDraftConfig>(root, "self_draft") + table_text<ExitConfig>(root, "exit") +
            table_text<ScheduleConfig>(root, "schedule") +
            table_text<AcceptanceRule>(root, "acceptance") +
            table_text<SupervisionConfig>(root, "supervision");
    return text.substr(1);  // without the empty line before the first table
}

}  // namespace paceline
