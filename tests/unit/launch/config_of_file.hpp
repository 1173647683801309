// Configurations in files, read for tests as a command reads them.
#pragma once

#include <string>

#include "launch/config/config_source.hpp"
#include "launch/config/methods.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline::testing {

/// What the product makes of a file that a command names.
inline Result<PipelineConfig> config_of_file(const std::string& path) {
    const Result<ConfigSource> source = file_source(path);
    return source ? parse_pipeline_config(source.value()) : source.error();
}

}  // namespace paceline::testing
