#include "launch/api/fields.hpp"

#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::serve {

using json = nlohmann::ordered_json;

std::optional<std::int64_t> whole_number_of(const json& value) {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (value.is_number_unsigned()) {
        const auto whole = value.get<std::uint64_t>();
        if (whole > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
        return static_cast<std::int64_t>(whole);
    }
    if (value.is_number_integer()) return value.get<std::int64_t>();
    if (!value.is_number_float()) return {};
    const auto real = value.get<double>();
    if (std::trunc(real) != real || std::abs(real) > kExact) return {};
    return static_cast<std::int64_t>(real);
}

Fields::Fields(const json& object, std::string place)
    : object_{&object}, place_{std::move(place)} {}

std::string Fields::full_name(const std::string& name) const {
    return place_.empty() ? name : place_ + "." + name;
}

void Fields::refuse(const std::string& name, const std::string& what) {
    refuse(bad_field(full_name(name), what));
}

void Fields::refuse(ApiError error) {
    if (!error_) error_ = std::move(error);
}

const json* Fields::find(const char* name) const {
    const auto at = object_->find(name);
    return at == object_->end() || at->is_null() ? nullptr : &*at;
}

const json* Fields::list(const char* name, std::size_t most) {
    const json* found = find(name);
    if (found == nullptr) return nullptr;
    if (found->is_array() && found->size() <= most) return found;
    refuse(name, fmt::format("must be a list of at most {} elements", most));
    return nullptr;
}

const json* Fields::object(const char* name) {
    const json* found = find(name);
    if (found == nullptr || found->is_object()) return found;
    refuse(name, "must be an object");
    return nullptr;
}

void Fields::boolean(const char* name, bool& value) {
    const json* found = find(name);
    if (found == nullptr) return;
    if (!found->is_boolean()) return refuse(name, "must be true or false");
    value = found->get<bool>();
}

void Fields::number(const char* name, std::optional<float>& value, const NumberRange& range) {
    const json* found = find(name);
    if (found == nullptr) return;
    const auto allowed = [&] {
        return fmt::format("must be a number {} {} {} {}", range.without_low ? "over" : "from",
                           range.low, range.without_high ? "and below" : "up to", range.high);
    };
    if (!found->is_number()) return refuse(name, allowed());
    const auto real = found->get<double>();
    const bool low = range.without_low ? real > range.low : real >= range.low;
    const bool high = range.without_high ? real < range.high : real <= range.high;
    if (!low || !high) return refuse(name, fmt::format("{} is out of range, {}", real, allowed()));
    value = static_cast<float>(real);
}

void Fields::integer(const char* name,
                     std::optional<std::int64_t>& value,
                     std::int64_t low,
                     std::int64_t high) {
    const json* found = find(name);
    if (found == nullptr) return;
    const std::optional<std::int64_t> whole = whole_number_of(*found);
    if (whole && *whole >= low && *whole <= high) {
        value = whole;
        return;
    }
    const std::string allowed = fmt::format("must be a whole number from {} to {}", low, high);
    refuse(name, whole ? fmt::format("{} is out of range, {}", *whole, allowed) : allowed);
}

void Fields::text(const char* name, std::string& value, std::size_t bytes_max) {
    const json* found = find(name);
    if (found == nullptr) return;
    if (!found->is_string()) return refuse(name, "must be a string");
    const auto& given = found->get_ref<const std::string&>();
    if (given.size() > bytes_max)
        return refuse(name, fmt::format("must have at most {} bytes", bytes_max));
    value = given;
}

void Fields::texts(const char* name,
                   std::vector<std::string>& values,
                   std::size_t most,
                   std::size_t bytes_max) {
    const json* found = list(name, most);
    if (found == nullptr) return;
    for (const json& each : *found) {
        if (!each.is_string() || each.get_ref<const std::string&>().size() > bytes_max)
            return refuse(name,
                          fmt::format("must be a list of strings of at most {} bytes", bytes_max));
        values.push_back(each.get<std::string>());
    }
}

}  // namespace paceline::serve
