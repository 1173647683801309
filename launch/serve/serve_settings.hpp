// Settings of `paceline serve` that are not on its command line: variables PACELINE_*, then the
// table [serve] of the --config file.
//
//     --kv-memory 2G    PACELINE_KV_MEMORY=2G    [serve] kv_memory = "2G"
//
// The option counts more than the variable, the variable more than the file. All three are checked
// by the option's own checks. The table is that of the file itself, not of files that it extends.
#pragma once

#include <map>
#include <string>

#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "launch/serve/serve_options.hpp"

namespace paceline {

using Variables = std::map<std::string, std::string>;  // by name; an empty one counts as absent

/// Sets the options that `command` was not given. `options` are those of add_serve(); their
/// config_source is read here. Errors: BadArgument naming the variable, or file, key and value;
/// those of file_source().
[[nodiscard]] Status complete_settings(Command command,
                                       const Variables& variables,
                                       ServeOptions& options);

/// "PACELINE_KV_MEMORY" of "kv_memory".
[[nodiscard]] std::string variable_name(const std::string& key);

}  // namespace paceline
