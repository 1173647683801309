#include "model/templates/characters.hpp"

#include <algorithm>
#include <optional>

#include "ipc/base/utf8.hpp"

namespace paceline::jinja {
namespace {

/// The range that `code` may be in: the last that begins at it or before.
template <class Range>
const Range* range_of(std::span<const Range> ranges, char32_t code) {
    const auto after =
        std::upper_bound(ranges.begin(), ranges.end(), code,
                         [](char32_t c, const Range& range) { return c < range.first; });
    if (after == ranges.begin() || code > (after - 1)->last) return nullptr;
    return &*(after - 1);
}

/// What the tables make of `code`; nothing: they do not have it.
std::optional<std::string> looked_up(std::span<const CaseRange> ranges,
                                     std::span<const CaseText> texts,
                                     char32_t code) {
    for (const CaseText& special : texts) {
        if (special.code == code) return special.text;
    }
    const CaseRange* range = range_of(ranges, code);
    if (range == nullptr || (code - range->first) % static_cast<std::uint32_t>(range->step) != 0)
        return std::nullopt;
    std::string text;
    utf8::append(text, static_cast<char32_t>(static_cast<std::int32_t>(code) + range->delta));
    return text;
}

}  // namespace

bool is_white_space(char32_t code) {
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_printable(char32_t code) {
    return range_of(tables::kNotPrintable, code) == nullptr;
}

std::string character_in_case(char32_t code, Case wanted) {
    std::optional<std::string> text;
    if (wanted == Case::Lower) text = looked_up(tables::kLower, tables::kLowerTexts, code);
    if (wanted == Case::Title) text = looked_up(tables::kTitle, tables::kTitleTexts, code);
    if (!text && wanted != Case::Lower) text = looked_up(tables::kUpper, tables::kUpperTexts, code);
    if (text) return *text;
    std::string same;
    utf8::append(same, code);
    return same;
}

}  // namespace paceline::jinja
