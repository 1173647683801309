// What Python does with values: truth, comparison, arithmetic, subscripts, iteration.
//
// Errors: those that Python raises fail the run, in Python's words where they are short.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/templates/run.hpp"

namespace paceline::jinja {

[[nodiscard]] bool truth(const Value& value);
/// "'x' is undefined", as jinja2 says it.
[[nodiscard]] std::string undefined_text(const Value& value);

/// ==; numbers of different types may be equal.
[[nodiscard]] bool equal(Run& run, const Value& a, const Value& b);
/// `is`: the same object; of numbers, texts and None the same type and value.
[[nodiscard]] bool is_same(Run& run, const Value& a, const Value& b);
enum class Order : signed char { Less = -1, Same = 0, Greater = 1, None = 2 };  // None: NaN
[[nodiscard]] Order order(Run& run, const Value& a, const Value& b);
/// "==", "!=", "<", "<=", ">", ">=", "in", "not in"
[[nodiscard]] bool compare(Run& run, std::string_view op, const Value& a, const Value& b);
[[nodiscard]] bool contains(Run& run, const Value& container, const Value& item);

/// "+", "-", "*", "/", "//", "%", "**"
[[nodiscard]] Value arithmetic(Run& run, std::string_view op, const Value& a, const Value& b);
[[nodiscard]] Value negative(Run& run, const Value& value);

/// What a for loop goes through: items, keys, characters. An iterator is empty the second time.
[[nodiscard]] std::vector<Value> iterate(Run& run, const Value& value);
/// len(); nothing for what has none (the run fails).
[[nodiscard]] std::optional<std::int64_t> length(Run& run, const Value& value);

/// Whether it can be a key of a dictionary and an item of a set.
[[nodiscard]] bool is_hashable(Run& run, const Value& value);
/// nullptr: not there. Fails for what cannot be a key.
[[nodiscard]] const Value* find(Run& run, const Dict& dict, const Value& key);
[[nodiscard]] const Value* find(const Dict& dict, std::string_view key);
/// Whether it has items by number: lists, tuples, ranges.
[[nodiscard]] bool has_indices(const Value& value);
/// Undefined where it is not there.
[[nodiscard]] Value subscript(Run& run, const Value& object, const Value& key);
/// The same. What Python has and this engine has not fails the run, by its name.
[[nodiscard]] Value attribute(Run& run, const Value& object, const std::string& name);
/// Fails for "_name": as in the transformers library, a namespace has no such attributes.
bool check_namespace_name(Run& run, std::string_view name);
/// object[from:to:step]; None where one is absent.
[[nodiscard]] Value slice(Run& run, const Value& object, const Value (&bounds)[3]);

}  // namespace paceline::jinja
