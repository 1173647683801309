// JsonKeys: typed, range-checked reads of one object in a JSON file.
//
// The first bad value wins: it becomes the Status that all objects of one file share, and what is
// read after it are defaults. So a reader of many keys is a plain list of reads with one check at
// its end. A key whose value is null is absent, as to transformers. Borrows object and status; not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/result.hpp"

namespace paceline::huggingface {

class JsonKeys {
public:
    struct IntRange {
        std::int64_t min;
        std::int64_t max;  // both included
    };
    struct NumberRange {
        double min;
        double max;  // both included
    };

    /// `file` names the file in messages, `prefix` the object in it: "rope_scaling.".
    JsonKeys(const nlohmann::json& object,
             std::string file,
             Status& status,
             std::string prefix = "");

    [[nodiscard]] const Status& status() const { return *status_; }
    [[nodiscard]] const std::string& file() const { return file_; }
    /// How messages name a key.
    [[nodiscard]] std::string name(const char* key) const { return prefix_ + key; }
    /// nullptr: absent.
    [[nodiscard]] const nlohmann::json* find(const char* key) const;
    [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr; }

    /// There, and null: for keys whose absence means something else.
    [[nodiscard]] bool is_null(const char* key) const;

    int required_int(const char* key, IntRange range);
    int int_or(const char* key, int fallback, IntRange range);
    std::optional<std::int64_t> find_int(const char* key, IntRange range);
    double required_number(const char* key, NumberRange range);
    double number_or(const char* key, double fallback, NumberRange range);
    std::optional<double> find_number(const char* key, NumberRange range);
    bool bool_or(const char* key, bool fallback);
    std::optional<bool> find_bool(const char* key);
    std::optional<std::string> find_text(const char* key);
    /// The object of `key`; one without keys if it is absent.
    JsonKeys child(const char* key);
    /// Another object of the same file, which messages call `prefix`.
    [[nodiscard]] JsonKeys inner(const nlohmann::json& object, std::string prefix) const;

    /// Makes this the status() unless there is an earlier error; the file is put in front.
    void fail(Errc code, const std::string& what);

private:
    const nlohmann::json* find_as(const char* key,
                                  bool (*fits)(const nlohmann::json&),
                                  const char* expected);

    const nlohmann::json* object_;
    std::string file_;
    Status* status_;
    std::string prefix_;
};

/// A value for a message, cut to what a sentence bears.
[[nodiscard]] std::string json_text_of(const nlohmann::json& value);

}  // namespace paceline::huggingface
