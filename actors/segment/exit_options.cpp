#include "actors/segment/exit_options.hpp"

#include <fmt/core.h>
#include <string>

namespace paceline {
namespace {

Error refused(const std::string& field, const std::string& value, const std::string& rule) {
    return {Errc::BadArgument, "exit: " + field + " = " + value + ", " + rule};
}

Status check_range(const char* field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return {};
    return refused(field, std::to_string(value), fmt::format("must be {} .. {}", low, high));
}

}  // namespace

Status validate(const ExitOptions& options) {
    if (Status top = check_range("top", options.top, 1, kExitTopMax); !top) return top;
    if (Status most = check_range("early_max", options.early_max, 1, kGammaMax); !most) return most;
    if (Status top = check_range("ahead_top", options.ahead_top, 1, kExitTopMax); !top) return top;
    if (!(options.gate >= 0.0F && options.gate <= 1.0F)) {
        return refused("gate", std::to_string(options.gate), "must be 0 .. 1");
    }
    if (options.defer_limit <= Micros{0}) {
        return refused("defer_limit", fmt::format("{} us", options.defer_limit.count()),
                       "must be positive");
    }
    if (options.defers && !options.proposes) {
        return refused("defers", "true", "an exit that proposes nothing has no reason to wait");
    }
    return {};
}

}  // namespace paceline
