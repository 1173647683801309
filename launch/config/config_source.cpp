#include "launch/config/config_source.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <vector>

#include "launch/base/text_input.hpp"
#include "launch/config/method_list.hpp"

namespace paceline {
namespace {

constexpr std::string_view kExtends = "extends";

/// Methods' names have neither a dot nor a slash.
bool is_path(std::string_view value) {
    return value.find_first_of("./") != std::string_view::npos;
}

std::string folder_of(const std::string& path) {
    return std::filesystem::path{path}.parent_path().string();
}

/// One name for a file, however it is reached; a method has its own.
std::string identity(const ConfigSource& source) {
    if (!source.folder) return source.file;
    std::error_code failed;
    const std::filesystem::path found = std::filesystem::weakly_canonical(source.file, failed);
    return failed ? source.file : found.string();
}

ConfigSource source_of(const Method& method) {
    return {std::string{method.text}, "configs/" + std::string{method.name} + ".toml"};
}

Result<ConfigSource> extended_source(const TomlTable& table, const ConfigSource& source) {
    const TomlValue value = table.value(kExtends);
    const auto* name = std::get_if<std::string>(&value);
    if (name == nullptr || name->empty())
        return table.error(kExtends, "must be the name of a method or of a file, in quotes");
    if (!is_path(*name)) {
        const Method* method = find_method(*name);
        if (method != nullptr) return source_of(*method);
        if (const std::string_view why = why_not_offered(*name); !why.empty())
            return table.error(kExtends, std::string{why.substr(1)});
        return table.error(kExtends, "is not a method" + known_methods_text(*name) +
                                         "; a file has a dot or a slash in its name");
    }
    if (!source.folder)
        return table.error(kExtends, "must be the name of a method: this is not a file");
    Result<ConfigSource> read =
        file_source((std::filesystem::path{*source.folder} / *name).string());
    if (read) return read;
    return Error{read.error().code,
                 table.error(kExtends, "cannot be read: " + read.error().what).what};
}

}  // namespace

Result<ConfigSource> file_source(const std::string& path) {
    Result<std::string> text = read_file(path, kTomlBytesMax);
    if (!text) return text.error();
    return ConfigSource{std::move(text).value(), path, folder_of(path)};
}

Result<ConfigSource> method_source(std::string_view name) {
    if (const Method* method = find_method(name)) return source_of(*method);
    if (const std::string_view why = why_not_offered(name); !why.empty())
        return Error{Errc::BadArgument, "--method: '" + std::string{name} + "'" + std::string{why}};
    return Error{Errc::BadArgument, "--method: '" + std::string{name} + "' is not a method" +
                                        known_methods_text(name)};
}

Result<ConfigSource> config_source(const std::string& config_file, const std::string& method) {
    return config_file.empty() ? method_source(method) : file_source(config_file);
}

Result<TomlTable> read_tables(const ConfigSource& source) {
    Result<TomlTable> tables = parse_toml(source.toml, source.file);
    if (!tables) return tables;
    std::vector<std::string> chain{identity(source)};
    ConfigSource at = source;
    for (TomlTable table = tables.value(); table.has(kExtends);) {
        Result<ConfigSource> base = extended_source(table, at);
        if (!base) return base.error();
        const std::string name = identity(base.value());
        if (std::find(chain.begin(), chain.end(), name) != chain.end())
            return table.error(kExtends,
                               "closes a circle: " + base.value().file + " is extended by itself");
        if (chain.size() == kConfigFilesMax)
            return table.error(kExtends, fmt::format("is one too many: at most {} files extend one "
                                                     "another",
                                                     kConfigFilesMax));
        chain.push_back(name);
        at = std::move(base).value();
        Result<TomlTable> read = parse_toml(at.toml, at.file);
        if (!read) return read.error();
        table = std::move(read).value();
        tables = tables.value().over(table);
    }
    return tables;
}

}  // namespace paceline
