// Filters that give numbers: int, float, round, abs.
#pragma once

#include "model/templates/interpreter.hpp"

namespace paceline::jinja {

[[nodiscard]] Value int_filter(Run& run, const Value& object, const Arguments& given);
[[nodiscard]] Value float_filter(Run& run, const Value& object, const Arguments& given);
[[nodiscard]] Value round_filter(Run& run, const Value& object, const Arguments& given);
[[nodiscard]] Value abs_filter(Run& run, const Value& object, const Arguments& given);

}  // namespace paceline::jinja
