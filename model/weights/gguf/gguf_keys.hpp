// GgufKeys: typed, range-checked reads of a GGUF file's key-values.
//
// The first bad value wins: it becomes status(), and what is read after it are defaults. So a
// reader of many keys is a plain list of reads with one check at its end. Borrows the header
// and the file's name; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/gguf/gguf_reader.hpp"

namespace paceline {

class GgufKeys {
public:
    struct IntRange {
        std::int64_t min;
        std::int64_t max;  // both included
    };
    struct FloatRange {
        double min;
        double max;  // both included
    };

    GgufKeys(const GgufHeader& header, const std::string& file) : header_{header}, file_{file} {}

    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] const std::string& file() const { return file_; }
    [[nodiscard]] bool has(const std::string& key) const;

    /// A missing key is an error with the first form, `fallback` with the second.
    /// Any integer type is taken, whatever its width and sign.
    int required_int(const std::string& key, IntRange range);
    int int_or(const std::string& key, int fallback, IntRange range);
    std::optional<std::int64_t> find_int(const std::string& key, IntRange range);
    /// float32 or float64; must be finite and inside the range.
    float float_or(const std::string& key, float fallback, FloatRange range);
    std::optional<float> find_float(const std::string& key, FloatRange range);
    float required_float(const std::string& key, FloatRange range);
    bool bool_or(const std::string& key, bool fallback);
    std::string_view text_or(const std::string& key, std::string_view fallback);
    /// Empty if the key is missing; an array without elements may be of any type.
    std::vector<std::string_view> texts(const std::string& key);
    std::vector<std::int64_t> ints(const std::string& key);
    /// An array of float32.
    std::vector<double> floats(const std::string& key);

    /// Makes this the status() unless there is an earlier error.
    void fail(Errc code, const std::string& what);

private:
    const GgufValue* find(const std::string& key, std::string_view expected);
    void wrong_type(const std::string& key, const GgufValue& value, std::string_view expected);

    const GgufHeader& header_;
    const std::string& file_;
    Status status_;
};

}  // namespace paceline
