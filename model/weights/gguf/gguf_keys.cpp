#include "model/weights/gguf/gguf_keys.hpp"

#include <fmt/core.h>
#include <limits>

#include "ipc/base/check.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

bool is_integer(GgufType type) {
    switch (type) {
        case GgufType::U8:
        case GgufType::I8:
        case GgufType::U16:
        case GgufType::I16:
        case GgufType::U32:
        case GgufType::I32:
        case GgufType::U64:
        case GgufType::I64:
            return true;
        case GgufType::F32:
        case GgufType::F64:
        case GgufType::Bool:
        case GgufType::String:
        case GgufType::Array:
            return false;
    }
    return false;
}

/// Bytes of one integer of `type`.
std::size_t integer_bytes(GgufType type) {
    switch (type) {
        case GgufType::U8:
        case GgufType::I8:
            return 1;
        case GgufType::U16:
        case GgufType::I16:
            return 2;
        case GgufType::U32:
        case GgufType::I32:
            return 4;
        default:
            return 8;
    }
}

/// The integer at `at`; a uint64 beyond int64 becomes the largest int64, which is out of every
/// range that is asked for.
std::int64_t load_integer(GgufType type, const std::byte* at) {
    switch (type) {
        case GgufType::U8:
            return load_number<std::uint8_t>(at);
        case GgufType::I8:
            return load_number<std::int8_t>(at);
        case GgufType::U16:
            return load_number<std::uint16_t>(at);
        case GgufType::I16:
            return load_number<std::int16_t>(at);
        case GgufType::U32:
            return load_number<std::uint32_t>(at);
        case GgufType::I32:
            return load_number<std::int32_t>(at);
        case GgufType::I64:
            return load_number<std::int64_t>(at);
        case GgufType::U64: {
            constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
            const auto value = load_number<std::uint64_t>(at);
            return value > static_cast<std::uint64_t>(kMax) ? kMax
                                                            : static_cast<std::int64_t>(value);
        }
        default:
            break;
    }
    PACE_CHECK(false, "only integers are loaded as integers");
}

/// Without elements their type says nothing, and writers put any.
bool is_empty_array(const GgufValue& value) {
    return value.type == GgufType::Array && value.count == 0;
}

std::string describe_type(const GgufValue& value) {
    if (value.type != GgufType::Array) return name_of(value.type);
    return fmt::format("array of {} {}", value.count, name_of(value.element));
}

}  // namespace

bool GgufKeys::has(const std::string& key) const {
    return header_.values.contains(key);
}

void GgufKeys::fail(Errc code, const std::string& what) {
    if (status_.ok()) status_ = Error{code, file_ + ": " + what};
}

void GgufKeys::wrong_type(const std::string& key,
                          const GgufValue& value,
                          std::string_view expected) {
    fail(Errc::BadFile,
         key + " is of type " + describe_type(value) + "; expected is " + std::string(expected));
}

/// `expected` is set for a required key: its absence is then the error.
const GgufValue* GgufKeys::find(const std::string& key, std::string_view expected) {
    const auto found = header_.values.find(key);
    if (found != header_.values.end()) return &found->second;
    if (!expected.empty()) fail(Errc::BadFile, "the key " + key + " is missing");
    return nullptr;
}

std::optional<std::int64_t> GgufKeys::find_int(const std::string& key, IntRange range) {
    const GgufValue* value = find(key, "");
    if (value == nullptr) return std::nullopt;
    if (!is_integer(value->type)) {
        wrong_type(key, *value, "an integer");
        return std::nullopt;
    }
    const std::int64_t number = load_integer(value->type, value->payload.data());
    if (number < range.min || number > range.max) {
        fail(Errc::BadFile,
             fmt::format("{} is {}; possible are {} to {}", key, number, range.min, range.max));
        return std::nullopt;
    }
    return number;
}

int GgufKeys::required_int(const std::string& key, IntRange range) {
    if (find(key, "an integer") == nullptr) return static_cast<int>(range.min);
    return static_cast<int>(find_int(key, range).value_or(range.min));
}

int GgufKeys::int_or(const std::string& key, int fallback, IntRange range) {
    return static_cast<int>(find_int(key, range).value_or(fallback));
}

std::optional<float> GgufKeys::find_float(const std::string& key, FloatRange range) {
    const GgufValue* value = find(key, "");
    if (value == nullptr) return std::nullopt;
    double number = 0;
    if (value->type == GgufType::F32) {
        number = static_cast<double>(load_number<float>(value->payload.data()));
    } else if (value->type == GgufType::F64) {
        number = load_number<double>(value->payload.data());
    } else {
        wrong_type(key, *value, "float32");
        return std::nullopt;
    }
    // Written so that a NaN fails too.
    if (!(number >= range.min && number <= range.max)) {
        fail(Errc::BadFile, key + " is " + number_text(number) + "; possible are " +
                                number_text(range.min) + " to " + number_text(range.max));
        return std::nullopt;
    }
    return static_cast<float>(number);
}

float GgufKeys::float_or(const std::string& key, float fallback, FloatRange range) {
    return find_float(key, range).value_or(fallback);
}

float GgufKeys::required_float(const std::string& key, FloatRange range) {
    if (find(key, "float32") == nullptr) return static_cast<float>(range.min);
    return find_float(key, range).value_or(static_cast<float>(range.min));
}

bool GgufKeys::bool_or(const std::string& key, bool fallback) {
    const GgufValue* value = find(key, "");
    if (value == nullptr) return fallback;
    if (value->type != GgufType::Bool) {
        wrong_type(key, *value, "bool");
        return fallback;
    }
    return std::to_integer<int>(value->payload[0]) != 0;
}

std::string_view GgufKeys::text_or(const std::string& key, std::string_view fallback) {
    const GgufValue* value = find(key, "");
    if (value == nullptr) return fallback;
    if (value->type != GgufType::String) {
        wrong_type(key, *value, "string");
        return fallback;
    }
    return {reinterpret_cast<const char*>(value->payload.data()), value->payload.size()};
}

std::vector<std::string_view> GgufKeys::texts(const std::string& key) {
    const GgufValue* value = find(key, "");
    if (value == nullptr || is_empty_array(*value)) return {};
    if (value->type != GgufType::Array || value->element != GgufType::String) {
        wrong_type(key, *value, "an array of strings");
        return {};
    }
    return strings_of(*value);
}

std::vector<std::int64_t> GgufKeys::ints(const std::string& key) {
    const GgufValue* value = find(key, "");
    if (value == nullptr || is_empty_array(*value)) return {};
    if (value->type != GgufType::Array || !is_integer(value->element)) {
        wrong_type(key, *value, "an array of integers");
        return {};
    }
    std::vector<std::int64_t> numbers;
    numbers.reserve(value->count);
    const std::size_t stride = integer_bytes(value->element);
    for (std::size_t i = 0; i < value->count; ++i) {
        numbers.push_back(load_integer(value->element, value->payload.data() + i * stride));
    }
    return numbers;
}

std::vector<double> GgufKeys::floats(const std::string& key) {
    const GgufValue* value = find(key, "");
    if (value == nullptr || is_empty_array(*value)) return {};
    if (value->type != GgufType::Array || value->element != GgufType::F32) {
        wrong_type(key, *value, "an array of float32");
        return {};
    }
    std::vector<double> numbers;
    numbers.reserve(value->count);
    for (std::size_t i = 0; i < value->count; ++i) {
        numbers.push_back(
            static_cast<double>(load_number<float>(value->payload.data() + i * sizeof(float))));
    }
    return numbers;
}

}  // namespace paceline
