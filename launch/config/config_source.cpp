#include "launch/config/config_source.hpp"

#include <utility>

#include "launch/base/text_input.hpp"
#include "launch/config/methods.hpp"

namespace paceline {

Result<ConfigSource> config_source(const std::string& config_file, const std::string& method) {
    if (!config_file.empty()) {
        Result<std::string> text = read_file(config_file);
        if (!text) return text.error();
        return ConfigSource{std::move(text).value(), config_file};
    }
    for (const Method& one : methods()) {
        if (one.name == method) return ConfigSource{std::string{one.text}, "method " + method};
    }
    // Whoever knows the names says which one was meant.
    const Result<PipelineConfig> unknown = method_config(method);
    return unknown ? Error{Errc::BadArgument, "--method " + method + " has no file"}
                   : unknown.error();
}

}  // namespace paceline
