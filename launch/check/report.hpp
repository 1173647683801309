// What `paceline check` prints and writes. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/check/run.hpp"

namespace paceline {

/// A line per prompt (equal, or the first place that differs), then what it cost.
[[nodiscard]] std::string check_table(const CheckResult& result, const CheckTask& task);
[[nodiscard]] nlohmann::json to_json(const CheckResult& result, const CheckTask& task);

}  // namespace paceline
