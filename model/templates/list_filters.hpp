// Filters of lists and dictionaries: map, select, sort, join, first, ...
#pragma once

#include <string_view>

#include "model/templates/interpreter.hpp"

namespace paceline::jinja {

[[nodiscard]] Value list_filter(Run& run,
                                std::string_view name,
                                const Value& object,
                                const Arguments& given);

}  // namespace paceline::jinja
