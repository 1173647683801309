#include "launch/config/field.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/core.h>

#include "launch/config/toml_reader.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

std::string listed(const std::vector<std::string_view>& words) {
    std::string text;
    for (const std::string_view word : words)
        text += (text.empty() ? "" : ", ") + quoted_text(word);
    return text;
}

/// The type and the present value, for the page and for messages.
struct Describe {
    struct Text {
        std::string type;
        std::string value;
    };
    Text operator()(const bool* at) const { return {"true or false", *at ? "true" : "false"}; }
    Text operator()(const NumberField& n) const {
        return {std::string{n.whole ? "a whole number from " : "a number from "} +
                    value_text(n.lowest) + " to " + value_text(n.highest),
                value_text(n.get())};
    }
    Text operator()(const TextField& text) const {
        return {"a text in quotes", quoted_text(*text.at)};
    }
    Text operator()(const WordField& w) const {
        return {listed(w.words), quoted_text(w.words[w.get()])};
    }
    Text operator()(const OwnField& own) const { return {own.type, own.value}; }
};

/// Reads the value of a key that is there.
struct Read {
    const TomlTable& table;
    std::string_view key;

    template <class Value>
    [[nodiscard]] Status refused(const Value& value) const {
        return table.error(key, "must be " + Describe{}(value).type);
    }

    Status operator()(bool* at) const {
        const TomlValue value = table.value(key);
        const bool* flag = std::get_if<bool>(&value);
        if (flag == nullptr) return refused(at);
        *at = *flag;
        return {};
    }

    Status operator()(const NumberField& field) const {
        const TomlValue value = table.value(key);
        const TomlNumber* number = std::get_if<TomlNumber>(&value);
        if (number == nullptr || (field.whole && !number->whole) || !field.allows(number->value))
            return refused(field);
        field.set(number->value);
        return {};
    }

    Status operator()(const TextField& field) const {
        const TomlValue value = table.value(key);
        const auto* text = std::get_if<std::string>(&value);
        if (text == nullptr) return refused(field);
        if (text->size() > field.bytes_max)
            return table.error(key, fmt::format("has more than {} bytes", field.bytes_max));
        if (field.one_line && visible(*text, text->size()) != *text)
            return table.error(key, "holds a control character");
        *field.at = *text;
        return {};
    }

    Status operator()(const WordField& field) const {
        const TomlValue value = table.value(key);
        const auto* word = std::get_if<std::string>(&value);
        const auto found = word == nullptr
                               ? field.words.end()
                               : std::find(field.words.begin(), field.words.end(), *word);
        if (found == field.words.end())
            return table.error(key, "is not allowed (allowed: " + listed(field.words) + ")");
        field.set(static_cast<std::size_t>(found - field.words.begin()));
        return {};
    }

    Status operator()(const OwnField& own) const { return own.read(table, key); }
};

}  // namespace

std::vector<Field> joined(std::initializer_list<std::vector<Field>> lists) {
    std::vector<Field> all;
    for (const std::vector<Field>& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
}

std::string value_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, value == std::floor(value) ? "%.0f" : "%g", value);
    return text;
}

bool NumberField::allows(double value) const {
    // Also refuses NaN, which is in no range.
    return value >= lowest && value <= highest && (!whole || value == std::floor(value));
}

NumberField micros(std::chrono::microseconds& at, double lowest, double highest) {
    return {[&at] { return static_cast<double>(at.count()); },
            [&at](double value) { at = std::chrono::microseconds{std::llround(value)}; }, lowest,
            highest, true};
}

NumberField seconds(std::chrono::milliseconds& at, double lowest, double highest) {
    return {[&at] { return std::chrono::duration<double>(at).count(); },
            [&at](double value) { at = std::chrono::milliseconds{std::llround(value * 1e3)}; },
            lowest, highest};
}

std::string type_text(const Field& field) {
    return std::visit(Describe{}, field.value).type;
}

std::string value_text(const Field& field) {
    return std::visit(Describe{}, field.value).value;
}

Status read_fields(const TomlTable& table, const std::vector<Field>& fields) {
    std::vector<std::string_view> keys;
    for (const Field& field : fields) keys.push_back(field.key);
    if (Status s = table.allow_only(keys); !s.ok()) return s;
    for (const Field& field : fields) {
        if (!table.has(field.key)) continue;
        if (Status s = std::visit(Read{table, field.key}, field.value); !s.ok()) return s;
    }
    return {};
}

}  // namespace paceline
