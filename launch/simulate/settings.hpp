// Settings that `paceline simulate` changes in a configuration: --set and --sweep.
//
//     SECTION.KEY=VALUE   a key of the file's table [SECTION], as TOML; words need no quotes
//     exit-layer=N        the first segment ends after layer N, the others share the rest
//     draft-cost=X        a draft's pass over one row takes X of the target's, whatever was
//                         measured
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/simulate/timing.hpp"

namespace paceline {

struct Setting {
    std::string key;
    std::string value;
    std::string option = "--set";  // for messages
};
inline constexpr const char* kExitLayer = "exit-layer";
inline constexpr const char* kDraftCost = "draft-cost";

/// "KEY=VALUE" of `option`, --set or --sweep. Errors: BadArgument naming option and word, also for
/// a key that is neither SECTION.KEY nor one of the two above.
[[nodiscard]] Result<Setting> parse_setting(const std::string& word, const std::string& option);

/// "KEY=V1,V2,..." of --sweep as one setting per value; commas within brackets do not divide.
[[nodiscard]] Result<std::vector<Setting>> parse_sweep(const std::string& word);

/// All combinations, one of each list; the last list changes fastest.
[[nodiscard]] std::vector<std::vector<Setting>> combinations(
    const std::vector<std::vector<Setting>>& sweeps);

/// `toml` with KEY of [SECTION] set; the table is appended if there is none.
[[nodiscard]] std::string with_key(const std::string& toml,
                                   const std::string& section,
                                   const std::string& key,
                                   const std::string& value);

struct Variant {
    PipelineConfig config;
    StageTimingOptions timing;
};

/// A configuration with all settings; exit-layer is only for a model whose `layers` are known.
/// Errors: BadArgument naming option and setting, or those of parse_pipeline_config() with all
/// settings behind the file's name.
[[nodiscard]] Result<Variant> apply_settings(const ConfigSource& source,
                                             const std::vector<Setting>& settings,
                                             const StageTimingOptions& timing,
                                             std::optional<int> layers);

}  // namespace paceline
