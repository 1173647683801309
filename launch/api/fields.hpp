// Fields: reads the fields of a JSON object into variables, with checks of type and range.
//
//     Fields fields{body};
//     fields.number("top_p", top_p, {.low = 0, .high = 1, .without_low = true});
//     if (fields.error()) return *fields.error();
//
// A field that is absent or null leaves its variable as it is. The first error stays; what is read
// afterwards has no effect. Borrows the object. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

struct NumberRange {
    double low = 0.0;
    double high = 1.0;
    bool without_low = false;
    bool without_high = false;
};

class Fields {
public:
    /// `place`: where the object is in the body, for messages: "stream_options".
    explicit Fields(const nlohmann::ordered_json& object, std::string place = {});

    /// Present and not null; nullptr: neither.
    [[nodiscard]] const nlohmann::ordered_json* find(const char* name) const;
    /// The same for a list of at most `most` elements, an object: nullptr with an error if it is
    /// something else.
    [[nodiscard]] const nlohmann::ordered_json* list(const char* name, std::size_t most);
    [[nodiscard]] const nlohmann::ordered_json* object(const char* name);

    void boolean(const char* name, bool& value);
    void number(const char* name, std::optional<float>& value, const NumberRange& range);
    void integer(const char* name,
                 std::optional<std::int64_t>& value,
                 std::int64_t low,
                 std::int64_t high);
    void text(const char* name, std::string& value, std::size_t bytes_max);
    /// A list of at most `most` strings of at most `bytes_max` bytes.
    void texts(const char* name,
               std::vector<std::string>& values,
               std::size_t most,
               std::size_t bytes_max);

    /// 400 that names the field.
    void refuse(const std::string& name, const std::string& what);
    void refuse(ApiError error);
    [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
    /// "stream_options.include_usage".
    [[nodiscard]] std::string full_name(const std::string& name) const;

private:
    const nlohmann::ordered_json* object_;
    std::string place_;
    std::optional<ApiError> error_;
};

/// A whole number, also one that is written as 5.0; nothing: it is none, or beyond 64 bits.
[[nodiscard]] std::optional<std::int64_t> whole_number_of(const nlohmann::ordered_json& value);

}  // namespace paceline::serve
