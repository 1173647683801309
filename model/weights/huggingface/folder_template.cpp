#include "model/weights/huggingface/folder_template.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/json_file.hpp"

namespace paceline::huggingface {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kKey = "chat_template";
constexpr const char* kDefault = "default";
constexpr const char* kMoreFolder = "additional_chat_templates";
constexpr std::size_t kTemplatesMax = 64;

using Named = std::vector<std::pair<std::string, std::string>>;  // name, text

/// The texts of `keys`; the name of a single one is "default".
Named templates_of(JsonKeys& keys) {
    const json* value = keys.find(kKey);
    if (value == nullptr) return {};
    Named found;
    if (!value->is_array()) {
        std::string text = keys.find_text(kKey).value_or("");
        if (!text.empty()) found.emplace_back(kDefault, std::move(text));
        return found;
    }
    for (const json& entry : *value) {
        if (!entry.is_object()) {
            keys.fail(Errc::BadFile, keys.name(kKey) + " has an entry that is no object");
            return {};
        }
        JsonKeys named = keys.inner(entry, keys.name(kKey) + "[].");
        found.emplace_back(named.find_text("name").value_or(""),
                           named.find_text("template").value_or(""));
        if (found.size() > kTemplatesMax) {
            keys.fail(Errc::BadFile, keys.name(kKey) + " has more than 64 entries");
            return {};
        }
    }
    return found;
}

/// The files NAME.jinja of the folder for further templates, sorted by name.
Result<Named> further_files(const std::string& folder) {
    Named found;
    std::error_code error;
    for (fs::directory_iterator at{fs::path{folder} / kMoreFolder, error}, end; !error && at != end;
         at.increment(error)) {
        if (at->path().extension() != ".jinja") continue;
        Result<std::optional<std::string>> text =
            read_text_file(at->path().string(), kSmallJsonBytesMax);
        if (!text) return text.error();
        if (text.value()) found.emplace_back(at->path().stem().string(), *std::move(text).value());
        if (found.size() > kTemplatesMax) {
            return Error{Errc::BadFile, folder + "/" + kMoreFolder + " has more than 64 templates"};
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

/// chat_template.jinja and what lies beside it; empty: neither.
Result<Named> template_files(const std::string& folder) {
    Result<std::optional<std::string>> text =
        read_text_file(folder + "/chat_template.jinja", kSmallJsonBytesMax);
    if (!text) return text.error();
    Result<Named> found = further_files(folder);
    if (found && text.value())
        found.value().emplace(found.value().begin(), kDefault, *std::move(text).value());
    return found;
}

Result<Named> processor_template(const std::string& folder) {
    const std::string file = folder + "/chat_template.json";
    const Result<std::optional<std::string>> text = read_text_file(file, kSmallJsonBytesMax);
    if (!text) return text.error();
    if (!text.value()) return Named{};
    const Result<json> root = parse_json_object(*text.value(), file);
    if (!root) return root.error();
    Status status;
    JsonKeys keys(root.value(), file, status);
    Named found = templates_of(keys);
    if (!status) return status.error();
    return found;
}

}  // namespace

Result<FolderTemplates> read_chat_templates(const std::string& folder, JsonKeys& tokenizer_config) {
    FolderTemplates templates;
    templates.sources.place = "chat_template.jinja, or chat_template of tokenizer_config.json";
    templates.sources.tokens_place = "tokenizer.json";
    Result<Named> found = template_files(folder);
    if (found && found.value().empty()) found = templates_of(tokenizer_config);
    if (!tokenizer_config.status()) return tokenizer_config.status().error();
    if (found && found.value().empty()) found = processor_template(folder);
    if (!found) return found.error();
    Named& all = found.value();
    auto chosen = std::find_if(all.begin(), all.end(),
                               [](const auto& named) { return named.first == kDefault; });
    if (chosen == all.end()) chosen = all.begin();
    if (chosen == all.end()) return templates;
    templates.text = chosen->second;
    if (chosen->first == kDefault) all.erase(chosen);
    templates.sources.more = std::move(all);
    return templates;
}

}  // namespace paceline::huggingface
