#include "launch/serve/serve_settings.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/config/toml_reader.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

enum class Kind { Text, Number, Size, Flag, Texts };

struct Setting {
    std::string_view key;
    Kind kind = Kind::Text;
    bool in_file = true;
    bool in_variable = true;
};

/// The options of the command: "kv_memory" is --kv-memory.
constexpr Setting kSettings[] = {
    {"model"},
    {"lora"},
    {"dtype"},
    {"kv_dtype"},
    {"isa"},
    {"threads", Kind::Number},
    {"context", Kind::Number},
    {"no_cache", Kind::Flag},
    {"device"},
    {"parts"},
    {"config", Kind::Text, false},
    {"method", Kind::Text, false},
    {"draft_model"},
    {"replan", Kind::Number},
    {"gpus"},
    {"alias"},
    {"requests", Kind::Number},
    {"kv_memory", Kind::Size},
    {"queue", Kind::Number},
    {"unix"},
    {"host"},
    {"port", Kind::Number},
    {"peer_connections", Kind::Number},
    {"api_key_file"},
    {"cors_origin", Kind::Texts},
    {"drain", Kind::Number},
    {"keep_alive", Kind::Number},
    {"resume", Kind::Number},
    {"head_timeout", Kind::Number},
    {"body_timeout", Kind::Number},
    {"recovery_wait", Kind::Number},
    {"grammar_seconds", Kind::Number},
    {"node"},
    {"meet"},
    {"key", Kind::Text, true, false},  // PACELINE_KEY is the key itself
    {"node_name"},
    {"log"},
    {"verbose", Kind::Flag},
};

/// A place to be reached at excludes the others, and so do the two ways to name a pipeline.
constexpr std::pair<std::string_view, std::string_view> kExclusive[] = {
    {"unix", "host"}, {"unix", "port"}, {"config", "method"}};

std::string option_name(std::string_view key) {
    std::string name = "--" + std::string{key};
    for (char& c : name) {
        if (c == '_') c = '-';
    }
    return name;
}

/// Whether an option that counts more rules this one out.
bool is_ruled_out(Command& command, std::string_view key) {
    for (const auto& [one, other] : kExclusive) {
        if (key == one && command.option(option_name(other)).given()) return true;
        if (key == other && command.option(option_name(one)).given()) return true;
    }
    return false;
}

std::vector<std::string> parts_of_list(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        if (end > begin) parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

Status read_variable(Command& command, const Setting& setting, const Variables& variables) {
    if (!setting.in_variable) return {};
    const auto at = variables.find(variable_name(std::string{setting.key}));
    if (at == variables.end() || at->second.empty()) return {};
    Option option = command.option(option_name(setting.key));
    if (option.given() || is_ruled_out(command, setting.key)) return {};
    const bool list = setting.kind == Kind::Texts;
    const std::string wrong =
        option.give(list ? parts_of_list(at->second) : std::vector{at->second});
    if (wrong.empty()) return {};
    return Error{Errc::BadArgument, at->first + "=" + visible(at->second) + ": " + wrong};
}

const char* type_of(Kind kind) {
    switch (kind) {
        case Kind::Number:
            return "must be a number";
        case Kind::Size:
            return "must be a number of bytes, or a text such as \"2G\"";
        case Kind::Flag:
            return "must be true or false";
        case Kind::Texts:
            return "must be a list of texts";
        case Kind::Text:
            break;
    }
    return "must be a text, in quotes";
}

/// What the option takes for the key's value; nothing: it has another type.
std::optional<std::vector<std::string>> words_of(const TomlTable& table, const Setting& setting) {
    const TomlValue value = table.value(setting.key);
    const auto* text = std::get_if<std::string>(&value);
    const auto* list = std::get_if<TomlTexts>(&value);
    switch (setting.kind) {
        case Kind::Number:
        case Kind::Size:
            if (std::holds_alternative<TomlNumber>(value))
                return std::vector{table.text(setting.key)};
            if (text != nullptr && setting.kind == Kind::Size) return std::vector{*text};
            return {};
        case Kind::Flag:
            if (const bool* flag = std::get_if<bool>(&value))
                return std::vector<std::string>{*flag ? "true" : "false"};
            return {};
        case Kind::Texts:
            if (list != nullptr) return *list;
            return {};
        case Kind::Text:
            if (text != nullptr) return std::vector{*text};
            return {};
    }
    return {};
}

Status read_key(Command& command, const Setting& setting, const TomlTable& table) {
    if (!table.has(setting.key)) return {};
    const std::optional<std::vector<std::string>> words = words_of(table, setting);
    if (!words) return table.error(setting.key, type_of(setting.kind));
    Option option = command.option(option_name(setting.key));
    if (option.given() || is_ruled_out(command, setting.key)) return {};
    const std::string wrong = option.give(*words);
    return wrong.empty() ? Status{} : table.error(setting.key, "is wrong: " + wrong);
}

Status read_file_table(Command& command, const ConfigSource& source) {
    const Result<TomlTable> file = parse_toml(source.toml, source.file);
    if (!file) return file.error();
    if (!file.value().has("serve")) return {};
    const Result<TomlTable> table = file.value().table("serve");
    if (!table) return table.error();
    std::vector<std::string_view> known;
    for (const Setting& setting : kSettings) {
        if (setting.in_file) known.push_back(setting.key);
    }
    if (Status s = table.value().allow_only(known); !s) return s;
    for (const Setting& setting : kSettings) {
        if (!setting.in_file) continue;
        if (Status s = read_key(command, setting, table.value()); !s) return s;
    }
    return {};
}

}  // namespace

std::string variable_name(const std::string& key) {
    std::string name = "PACELINE_" + key;
    for (char& c : name) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return name;
}

Status complete_settings(Command command, const Variables& variables, ServeOptions& options) {
    for (const Setting& setting : kSettings) {
        if (Status s = read_variable(command, setting, variables); !s) return s;
    }
    if (options.config_file.empty()) return {};
    Result<ConfigSource> source = file_source(options.config_file);
    if (!source) return source.error();
    options.config_source = std::move(source).value();
    return read_file_table(command, *options.config_source);
}

}  // namespace paceline
