#include "model/weights/huggingface/folder_template.hpp"

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/json_file.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

constexpr const char* kKey = "chat_template";

std::string template_of(JsonKeys& keys) {
    const json* value = keys.find(kKey);
    if (value == nullptr || !value->is_array()) return keys.find_text(kKey).value_or("");
    std::string first;
    for (const json& entry : *value) {
        if (!entry.is_object()) {
            keys.fail(Errc::BadFile, keys.name(kKey) + " has an entry that is no object");
            return {};
        }
        JsonKeys named = keys.inner(entry, keys.name(kKey) + "[].");
        std::string text = named.find_text("template").value_or("");
        if (named.find_text("name") == "default") return text;
        if (first.empty()) first = std::move(text);
    }
    return first;
}

}  // namespace

Result<std::string> read_chat_template(const std::string& folder, JsonKeys& tokenizer_config) {
    const Result<std::optional<std::string>> text =
        read_text_file(folder + "/chat_template.jinja", kSmallJsonBytesMax);
    if (!text) return text.error();
    if (text.value()) return *text.value();
    std::string found = template_of(tokenizer_config);
    if (!tokenizer_config.status()) return tokenizer_config.status().error();
    if (!found.empty()) return found;
    const std::string file = folder + "/chat_template.json";
    const Result<std::optional<std::string>> of_processor =
        read_text_file(file, kSmallJsonBytesMax);
    if (!of_processor) return of_processor.error();
    if (!of_processor.value()) return std::string{};
    const Result<json> root = parse_json_object(*of_processor.value(), file);
    if (!root) return root.error();
    Status status;
    JsonKeys keys(root.value(), file, status);
    found = template_of(keys);
    if (!status) return status.error();
    return found;
}

}  // namespace paceline::huggingface
