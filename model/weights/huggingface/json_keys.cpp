#include "model/weights/huggingface/json_keys.hpp"

#include <cmath>
#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/message_text.hpp"

namespace paceline::huggingface {

using nlohmann::json;

namespace {

const json kNoKeys = json::object();

bool is_integer(const json& value) {
    // A uint64 beyond int64 has no place in any range here.
    return value.is_number_integer() &&
           (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}
bool is_number(const json& value) {
    return value.is_number() && std::isfinite(value.get<double>());
}
bool is_bool(const json& value) {
    return value.is_boolean();
}
bool is_text(const json& value) {
    return value.is_string();
}
bool is_object(const json& value) {
    return value.is_object();
}

}  // namespace

std::string json_text_of(const json& value) {
    if (value.is_string()) return paceline::quoted_text(value.get_ref<const std::string&>());
    if (value.is_array()) return fmt::format("a list of {}", value.size());
    if (value.is_object()) return "an object";
    return visible(value.dump());
}

JsonKeys::JsonKeys(const json& object, std::string file, Status& status, std::string prefix)
    : object_{&object}, file_{std::move(file)}, status_{&status}, prefix_{std::move(prefix)} {}

const json* JsonKeys::find(const char* key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonKeys::is_null(const char* key) const {
    const auto found = object_->find(key);
    return found != object_->end() && found->is_null();
}

void JsonKeys::fail(Errc code, const std::string& what) {
    if (status_->ok()) *status_ = Error{code, file_ + ": " + what};
}

const json* JsonKeys::find_as(const char* key, bool (*fits)(const json&), const char* expected) {
    const json* value = find(key);
    if (value == nullptr || fits(*value)) return value;
    fail(Errc::BadFile,
         fmt::format("{} is {}; it must be {}", name(key), json_text_of(*value), expected));
    return nullptr;
}

std::optional<std::int64_t> JsonKeys::find_int(const char* key, IntRange range) {
    const json* value = find_as(key, is_integer, "a whole number");
    if (value == nullptr) return std::nullopt;
    const auto number = value->get<std::int64_t>();
    if (number >= range.min && number <= range.max) return number;
    fail(Errc::BadFile,
         fmt::format("{} is {}; possible are {} to {}", name(key), number, range.min, range.max));
    return std::nullopt;
}

int JsonKeys::int_or(const char* key, int fallback, IntRange range) {
    return static_cast<int>(find_int(key, range).value_or(fallback));
}

int JsonKeys::required_int(const char* key, IntRange range) {
    if (!has(key)) fail(Errc::BadFile, "the key " + name(key) + " is missing");
    return int_or(key, static_cast<int>(range.min), range);
}

std::optional<double> JsonKeys::find_number(const char* key, NumberRange range) {
    const json* value = find_as(key, is_number, "a number");
    if (value == nullptr) return std::nullopt;
    const auto number = value->get<double>();
    if (number >= range.min && number <= range.max) return number;
    fail(Errc::BadFile,
         fmt::format("{} is {}; possible are {} to {}", name(key), number_text(number),
                     number_text(range.min), number_text(range.max)));
    return std::nullopt;
}

double JsonKeys::number_or(const char* key, double fallback, NumberRange range) {
    return find_number(key, range).value_or(fallback);
}

double JsonKeys::required_number(const char* key, NumberRange range) {
    if (!has(key)) fail(Errc::BadFile, "the key " + name(key) + " is missing");
    return number_or(key, range.min, range);
}

std::optional<bool> JsonKeys::find_bool(const char* key) {
    const json* value = find_as(key, is_bool, "true or false");
    return value == nullptr ? std::nullopt : std::optional{value->get<bool>()};
}

bool JsonKeys::bool_or(const char* key, bool fallback) {
    return find_bool(key).value_or(fallback);
}

std::optional<std::string> JsonKeys::find_text(const char* key) {
    const json* value = find_as(key, is_text, "a text");
    return value == nullptr ? std::nullopt : std::optional{value->get<std::string>()};
}

JsonKeys JsonKeys::child(const char* key) {
    const json* value = find_as(key, is_object, "an object");
    return {value == nullptr ? kNoKeys : *value, file_, *status_, name(key) + "."};
}

JsonKeys JsonKeys::inner(const json& object, std::string prefix) const {
    return {object, file_, *status_, std::move(prefix)};
}

}  // namespace paceline::huggingface
