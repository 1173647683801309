// Field: one key of a table of a configuration, and the member of a struct that it sets.
//
// fields_of(struct) is the only list of a struct's keys, with type, range and one sentence each.
// From it come the reading and checking of a file (read_fields), docs/configuration.md
// (settings_page.hpp) and what a stage process is sent (launch/placement/stage_assignment.cpp). A
// default is the value of the member in a default-constructed struct. Checks that concern several
// keys are code beside the list.
//
// A Field refers to its struct and must not outlive it. Plain values; any thread.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

class TomlTable;

inline constexpr int kVocabularyMax = 1 << 24;  // of a short list, before the model is known

/// A number as the file has it; the member may be of another type or unit.
struct NumberField {
    std::function<double()> get;
    std::function<void(double)> set;
    double lowest = 0;
    double highest = 0;
    bool whole = false;

    [[nodiscard]] bool allows(double value) const;
};

struct TextField {
    std::string* at = nullptr;
    std::size_t bytes_max = 4096;  // of a path
    bool one_line = false;         // no control characters, valid UTF-8
};

/// A word of a list, by its index.
struct WordField {
    std::vector<std::string_view> words;
    std::function<std::size_t()> get;
    std::function<void(std::size_t)> set;
};

/// What only a file has, with a notation of its own.
struct OwnField {
    std::string type;  // of the page
    std::string value;
    std::function<Status(const TomlTable& table, std::string_view key)> read;
};

struct Field {
    std::string_view key;
    std::variant<bool*, NumberField, TextField, WordField, OwnField> value;
    std::string_view sentence = {};
    std::string_view default_text = {};  // of the page, where other settings decide
};

template <class Number>
[[nodiscard]] NumberField number(Number& at, double lowest, double highest) {
    return {.get = [&at] { return static_cast<double>(at); },
            .set = [&at](double value) { at = static_cast<Number>(value); },
            .lowest = lowest,
            .highest = highest,
            .whole = std::is_integral_v<Number>};
}
[[nodiscard]] NumberField micros(std::chrono::microseconds& at, double lowest, double highest);
/// In seconds.
[[nodiscard]] NumberField seconds(std::chrono::milliseconds& at, double lowest, double highest);

/// `words` in the order of the enum's values.
template <class Enum>
[[nodiscard]] WordField word(Enum& at, std::vector<std::string_view> words) {
    return {.words = std::move(words),
            .get = [&at] { return static_cast<std::size_t>(at); },
            .set = [&at](std::size_t index) { at = static_cast<Enum>(index); }};
}

/// The lists one after the other, for a table whose keys are members of several structs.
[[nodiscard]] std::vector<Field> joined(std::initializer_list<std::vector<Field>> lists);

/// "8", "0.001"
[[nodiscard]] std::string value_text(double value);
/// "a whole number from 1 to 32"
[[nodiscard]] std::string type_text(const Field& field);
/// As in a file: 8, "sequential", true.
[[nodiscard]] std::string value_text(const Field& field);

/// Sets the members whose keys are in `table`. Errors: BadArgument naming file, line, key and
/// value: a key that is not in `fields` (with the one that was probably meant), another type, out
/// of range.
[[nodiscard]] Status read_fields(const TomlTable& table, const std::vector<Field>& fields);

}  // namespace paceline
