#include "model/tokenizer/deepseek.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/utf8.hpp"
#include "model/tokenizer/char_class.hpp"
#include "model/tokenizer/deepseek_pattern.hpp"
#include "model/tokenizer/unicode_tables.hpp"

namespace paceline {
namespace {

using Pieces = std::vector<std::string_view>;

/// The characters between the brackets of a regular expression: "A-Z" is a range, "xy" are two.
class CharacterSet {
public:
    explicit CharacterSet(std::string_view text) {
        while (!text.empty()) {
            const utf8::Step first = utf8::first(text);
            text.remove_prefix(first.bytes);
            char32_t last = first.code;
            if (text.size() > 1 && text[0] == '-') {
                const utf8::Step end = utf8::first(text.substr(1));
                last = end.code;
                text.remove_prefix(1U + end.bytes);
            }
            ranges_.emplace_back(first.code, last);
        }
        std::sort(ranges_.begin(), ranges_.end());
    }
    [[nodiscard]] bool has(char32_t code) const {
        const auto after =
            std::upper_bound(ranges_.begin(), ranges_.end(), std::pair{code, char32_t{0x110000}});
        return after != ranges_.begin() && code <= std::prev(after)->second;
    }

private:
    std::vector<std::pair<char32_t, char32_t>> ranges_;
};

bool has_class(char32_t code, std::uint8_t classes) {
    return (unicode::char_class(code) & classes) != 0;
}

bool is_letter(char32_t code) {
    return has_class(code, unicode::kLetter);
}
bool is_punctuation(char32_t code) {
    return has_class(code, unicode::kPunctuation);
}
bool is_number(char32_t code) {
    return has_class(code, unicode::kNumeric);
}
bool is_space(char32_t code) {
    return has_class(code, unicode::kSpace);
}
bool is_line_break(char32_t code) {
    return code == '\r' || code == '\n';
}
bool is_cased_letter(char32_t code) {
    static const CharacterSet set{deepseek::kLetters};
    return set.has(code);
}
bool is_listed_punctuation(char32_t code) {
    static const CharacterSet set{deepseek::kPunctuation};
    return set.has(code);
}
bool is_ideograph(char32_t code) {
    static const CharacterSet set{deepseek::kIdeographs};
    return set.has(code);
}

using Is = bool (*)(char32_t code);

std::size_t run_of(Is is, std::string_view text, std::size_t at) {
    while (at < text.size()) {
        const utf8::Step step = utf8::first(text.substr(at));
        if (!is(step.code)) break;
        at += step.bytes;
    }
    return at;
}

/// Cuts `text` into the matches of an expression and what lies between. `match(at)` is the end of
/// the match that begins at `at`, or `at` if there is none.
template <class Match>
void cut(std::string_view text, Match match, Pieces& out) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = match(at);
        if (end == at) {
            at += utf8::first(text.substr(at)).bytes;
            continue;
        }
        if (kept < at) out.push_back(text.substr(kept, at - kept));
        out.push_back(text.substr(at, end - at));
        kept = at = end;
    }
    if (kept < text.size()) out.push_back(text.substr(kept));
}

/// [x]
void cut_single(Is is, std::string_view text, Pieces& out) {
    cut(
        text,
        [&](std::size_t at) {
            const utf8::Step step = utf8::first(text.substr(at));
            return is(step.code) ? at + step.bytes : at;
        },
        out);
}

/// [x]+
void cut_runs(Is is, std::string_view text, Pieces& out) {
    cut(
        text, [&](std::size_t at) { return run_of(is, text, at); }, out);
}

/// \s?[x]+
void cut_words(Is is, std::string_view text, Pieces& out) {
    cut(
        text,
        [&](std::size_t at) {
            const utf8::Step step = utf8::first(text.substr(at));
            if (is_space(step.code)) {
                const std::size_t begin = at + step.bytes;
                const std::size_t end = run_of(is, text, begin);
                if (end > begin) return end;
            }
            return run_of(is, text, at);
        },
        out);
}

/// \s+$
void cut_last_space(std::string_view text, Pieces& out) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
        const utf8::Step step = utf8::first(text.substr(at));
        at += step.bytes;
        if (!is_space(step.code)) begin = at;
    }
    if (begin > 0) out.push_back(text.substr(0, begin));
    if (begin < text.size()) out.push_back(text.substr(begin));
}

template <class Cut>
void each(Cut cut_one, Pieces& pieces) {
    Pieces finer;
    finer.reserve(2 * pieces.size());
    for (const std::string_view piece : pieces) cut_one(piece, finer);
    pieces = std::move(finer);
}

}  // namespace

void cut_deepseek(DeepSeek kind, std::string_view text, std::vector<std::string_view>& out) {
    Pieces pieces;
    cut_single(is_line_break, text, pieces);
    const bool coder = kind == DeepSeek::Coder;
    const Is letters = coder ? is_letter : is_cased_letter;
    const Is marks = coder ? is_punctuation : is_listed_punctuation;
    each([&](std::string_view piece, Pieces& finer) { cut_words(letters, piece, finer); }, pieces);
    each([&](std::string_view piece, Pieces& finer) { cut_words(marks, piece, finer); }, pieces);
    if (!coder) each(cut_last_space, pieces);
    each([](std::string_view piece, Pieces& finer) { cut_runs(is_ideograph, piece, finer); },
         pieces);
    each([](std::string_view piece, Pieces& finer) { cut_single(is_number, piece, finer); },
         pieces);
    out.insert(out.end(), pieces.begin(), pieces.end());
}

}  // namespace paceline
