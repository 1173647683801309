#include "launch/load/json_lines.hpp"

#include <algorithm>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "ipc/base/json_fault.hpp"

namespace paceline {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLevelsMax = 100;

/// Errors: why it is none, without a place.
Result<Json> parse(std::string_view line) {
    bool too_deep = false;
    const auto watch = [&too_deep](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
        too_deep = too_deep || depth > kLevelsMax;
        return !too_deep;
    };
    try {
        Json value = Json::parse(line, watch);
        if (too_deep)
            return Error{Errc::BadFile, fmt::format("JSON of more than {} levels", kLevelsMax)};
        return value;
    } catch (const Json::parse_error& error) {
        return Error{Errc::BadFile, "not JSON: " + json_fault(line, error.byte, error.what())};
    } catch (const Json::exception& error) {  // a number beyond all types
        return Error{Errc::BadFile, "not JSON: " + json_fault(line, 0, error.what())};
    }
}

}  // namespace

Status read_json_lines(std::string_view text, const std::string& name, const LineReader& read) {
    std::size_t line = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view content = text.substr(begin, end - begin);
        begin = end + 1;
        ++line;
        if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const Result<Json> value = parse(content);
        const Status done = value ? read(value.value(), line) : Status{value.error()};
        if (!done)
            return Error{done.error().code,
                         fmt::format("{}:{}: {}", name, line, done.error().what)};
    }
    return {};
}

}  // namespace paceline
