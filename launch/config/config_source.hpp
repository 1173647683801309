// ConfigSource: the text of a pipeline's configuration, for settings to be changed in it.
#pragma once

#include <string>

#include "ipc/base/result.hpp"

namespace paceline {

struct ConfigSource {
    std::string toml;
    std::string file;  // what errors name
};

/// Of a file, or (if `config_file` is empty) of a method. Errors: BadArgument naming the method,
/// BadFile naming the file.
[[nodiscard]] Result<ConfigSource> config_source(const std::string& config_file,
                                                 const std::string& method);

}  // namespace paceline
