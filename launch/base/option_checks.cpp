#include "launch/base/option_checks.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>
#include <optional>
#include <sstream>
#include <string_view>

namespace paceline {

namespace {

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
    Number number{};
    const char* end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number);
    if (failure != std::errc{} || rest != end) return std::nullopt;
    return number;
}

/// Of values that can be typed: "or more" hides a highest one that is only the type's.
std::string range_text(const std::string& value, long long lowest, long long highest) {
    const bool digits = value.size() > 9 && value.find_first_not_of("0123456789") == value.npos;
    if (highest == std::numeric_limits<int>::max() && !digits)
        return fmt::format("{} or more", lowest);
    return fmt::format("{} to {}", lowest, highest);
}

std::string alternatives(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : "|") + word;
    return text;
}

/// The word of `words` that differs from `value` in the case of letters at most; else `value`.
std::string spelt_like(const std::vector<std::string>& words, const std::string& value) {
    const auto lower = [](std::string text) {
        for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        return text;
    };
    const auto found = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
        return lower(word) == lower(value);
    });
    return found == words.end() ? value : *found;
}

bool is_whole(const std::string& value, long long lowest, long long highest) {
    const std::optional<long long> number = parse_number<long long>(value);
    return number && *number >= lowest && *number <= highest;
}

}  // namespace

std::vector<std::string> split_list(const std::string& word) {
    std::vector<std::string> parts;
    std::istringstream stream{word};
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    if (word.empty() || word.back() == ',') parts.emplace_back();
    return parts;
}

std::vector<int> parse_int_list(const std::string& word) {
    std::vector<int> numbers;
    for (const std::string& part : split_list(word)) {
        numbers.push_back(parse_number<int>(part).value_or(0));
    }
    return numbers;
}

OptionCheck one_of(std::vector<std::string> words) {
    std::string allowed = alternatives(words);
    const auto spelling = [words](const std::string& value) { return spelt_like(words, value); };
    const auto check = [words = std::move(words),
                        allowed](const std::string& value) -> std::string {
        const bool known = std::find(words.begin(), words.end(), value) != words.end();
        return known ? std::string{} : in_quotes(value) + " is not one of " + allowed;
    };
    return OptionCheck{check, allowed, spelling};
}

OptionCheck list_of(std::vector<std::string> words) {
    std::string allowed = alternatives(words);
    const auto spelling = [words](const std::string& value) {
        std::string list;
        for (const std::string& part : split_list(value)) list += spelt_like(words, part) + ",";
        list.pop_back();
        return list;
    };
    const auto check = [words = std::move(words),
                        allowed](const std::string& value) -> std::string {
        for (const std::string& part : split_list(value)) {
            if (std::find(words.begin(), words.end(), part) != words.end()) continue;
            return in_quotes(part) + " is not one of " + allowed;
        }
        return {};
    };
    return OptionCheck{check, allowed + ",...", spelling};
}

OptionCheck number_between(double lowest, double highest, Bound low, Bound high) {
    std::ostringstream range;
    range << (low == Bound::Included ? "[" : "(") << lowest << ", " << highest
          << (high == Bound::Included ? "]" : ")");
    const auto check = [=, text = range.str()](const std::string& value) -> std::string {
        const std::optional<double> number = parse_number<double>(value);
        if (!number || std::isnan(*number)) return in_quotes(value) + " is not a number";
        const bool above = low == Bound::Included ? *number >= lowest : *number > lowest;
        const bool below = high == Bound::Included ? *number <= highest : *number < highest;
        return above && below ? std::string{} : in_quotes(value) + " is not in " + text;
    };
    return OptionCheck{check};
}

OptionCheck zero_or_at_least(double lowest) {
    return OptionCheck{[=](const std::string& value) -> std::string {
        const double number = parse_number<double>(value).value_or(0.0);
        if (number == 0.0 || number >= lowest) return {};
        return in_quotes(value) + fmt::format(" is not 0 or at least {:g}", lowest);
    }};
}

OptionCheck whole_number(long long lowest, long long highest) {
    return OptionCheck{[=](const std::string& value) -> std::string {
        if (is_whole(value, lowest, highest)) return {};
        return in_quotes(value) + " is not a whole number, " + range_text(value, lowest, highest);
    }};
}

std::optional<std::uint64_t> parse_byte_size(const std::string& word) {
    constexpr double kMost = 1ULL << 50;
    constexpr std::string_view kUnits = "KMGT";
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    std::string_view unit{end};
    double factor = 1.0;
    if (!unit.empty()) {
        const std::size_t at = kUnits.find(static_cast<char>(std::toupper(unit.front())));
        if (at == std::string_view::npos) return std::nullopt;
        factor = std::ldexp(1.0, 10 * (static_cast<int>(at) + 1));
        unit.remove_prefix(1);
        if (!unit.empty() && unit != "iB" && unit != "B") return std::nullopt;
    }
    const double bytes = number * factor;
    if (end == word.c_str() || !(bytes >= 1.0 && bytes <= kMost)) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
}

OptionCheck byte_size() {
    return {.complaint = [](const std::string& word) -> std::string {
                if (parse_byte_size(word)) return {};
                return "must be a number of bytes such as 300M or 2G, not " + in_quotes(word);
            },
            .allowed = "SIZE",
            .spelling =
                [](const std::string& word) {
                    const std::optional<std::uint64_t> bytes = parse_byte_size(word);
                    return bytes ? std::to_string(*bytes) : word;
                }};
}

OptionCheck explain_low(const OptionCheck& check, const std::string& instead) {
    return OptionCheck{[=](const std::string& value) -> std::string {
                           std::string complaint = check.complaint(value);
                           const bool low = parse_number<double>(value).value_or(1.0) <= 0.0;
                           if (low && !complaint.empty()) complaint += "; " + instead;
                           return complaint;
                       },
                       check.allowed};
}

OptionCheck whole_number_list(long long lowest, long long highest) {
    return OptionCheck{[=](const std::string& value) -> std::string {
        for (const std::string& part : split_list(value)) {
            if (is_whole(part, lowest, highest)) continue;
            return in_quotes(part) + " in " + in_quotes(value) + " is not a whole number, " +
                   range_text(part, lowest, highest);
        }
        return {};
    }};
}

}  // namespace paceline
