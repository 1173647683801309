// ConfigSource: the text of a configuration before it is read, and what it extends.
//
//     extends = "fold"            a method (method_list.hpp)
//     extends = "../mine.toml"    a file, relative to the one that says so; not in a method
//
// Where it stands, the file holds the differences from that one: tables have the keys of both, a
// key that stands in both has the value of the file that extends, and so has a list: the [[stage]]s
// are those of one file. What is extended may itself extend another one. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

struct ConfigSource {
    std::string toml;
    std::string file;  // what errors name
    /// What a file's `extends` is relative to; nothing: it extends methods only.
    std::optional<std::string> folder = {};
};

/// The longest chain of files that extend one another.
inline constexpr std::size_t kConfigFilesMax = 8;

/// Errors: BadFile naming the file.
[[nodiscard]] Result<ConfigSource> file_source(const std::string& path);
/// Of a method, also kPlainMethod. Errors: BadArgument with the name that was probably meant.
[[nodiscard]] Result<ConfigSource> method_source(std::string_view name);
/// Of a file, or (if `config_file` is empty) of a method.
[[nodiscard]] Result<ConfigSource> config_source(const std::string& config_file,
                                                 const std::string& method);

/// The table of the whole file, over those of what it extends. Errors, each naming the file in
/// which the key stands: BadArgument (not TOML; `extends` is no method, closes a circle, is too
/// long a chain), BadFile (an extended file that cannot be read).
[[nodiscard]] Result<TomlTable> read_tables(const ConfigSource& source);

}  // namespace paceline
