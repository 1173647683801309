// config_text(): a configuration as one file, with the settings of all files that it extends:
// `paceline run --print-config`. Keys stand in the order of their lists, without comments.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "launch/config/config_source.hpp"

namespace paceline {

/// TOML without `extends`; read again, it gives the same PipelineConfig. Errors: those of
/// parse_pipeline_config().
[[nodiscard]] Result<std::string> config_text(const ConfigSource& source);

}  // namespace paceline
