#include "model/tokenizer/pre_tokenizer.hpp"

#include "ipc/base/check.hpp"
#include "ipc/base/utf8.hpp"
#include "model/tokenizer/char_class.hpp"
#include "model/tokenizer/deepseek.hpp"
#include "model/tokenizer/unicode_tables.hpp"

namespace paceline {
namespace {

using unicode::kLetter;
using unicode::kLower;
using unicode::kNumber;
using unicode::kNumeric;
using unicode::kSpace;
using unicode::kUpper;

/// A class of its own for "here the text ends".
constexpr std::uint8_t kEnd = 0x80;

/// Looks at one place of a text. Where digits are isolated, the text ends before each of them.
class Reader {
public:
    Reader(std::string_view text, bool isolated_digits)
        : text_{text}, isolated_digits_{isolated_digits} {}

    struct Char {
        std::uint8_t classes;
        std::uint8_t bytes;
    };
    [[nodiscard]] Char at(std::size_t place) const {
        if (place >= text_.size()) return {kEnd, 0};
        const utf8::Step step = utf8::first(text_.substr(place));
        const std::uint8_t classes = unicode::char_class(step.code);
        if (isolated_digits_ && (classes & kNumeric) != 0) return {kEnd, 0};
        return {classes, step.bytes};
    }
    [[nodiscard]] char byte(std::size_t place) const {
        return place < text_.size() ? text_[place] : '\0';
    }
    [[nodiscard]] std::string_view rest(std::size_t place) const { return text_.substr(place); }

    /// The end of the run of characters of one of `classes` that begins at `place`.
    [[nodiscard]] std::size_t run(std::size_t place, std::uint8_t classes) const {
        for (Char c = at(place); (c.classes & classes) != 0; c = at(place)) place += c.bytes;
        return place;
    }
    [[nodiscard]] bool is_other(std::size_t place) const {
        return (at(place).classes & (kSpace | kLetter | kNumber | kEnd)) == 0;
    }
    [[nodiscard]] std::size_t run_of_others(std::size_t place) const {
        while (is_other(place)) place += at(place).bytes;
        return place;
    }

private:
    std::string_view text_;
    bool isolated_digits_;
};

bool is_newline(char c) {
    return c == '\r' || c == '\n';
}

char ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

enum class Case : std::uint8_t { AsIs, Ignored };

/// The length of a contraction ("'s", "'ll") at the start of `text`, or 0.
std::size_t contraction(std::string_view text, Case letter_case) {
    if (text.size() < 2 || text[0] != '\'') return 0;
    const auto letter = [&](std::size_t i) {
        if (i >= text.size()) return '\0';
        return letter_case == Case::Ignored ? ascii_lower(text[i]) : text[i];
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    // The long s (U+017F) is an s to a regular expression that ignores case.
    if (letter_case == Case::Ignored && text.substr(1, 2) == "\xC5\xBF") return 3;
    return 0;
}

/// White space at the start: all of it at the end of the text; else the last character is left
/// to what follows, if it is not alone.
std::size_t white_space(const Reader& reader) {
    std::size_t end = 0, last = 0;
    for (Reader::Char c = reader.at(0); (c.classes & kSpace) != 0; c = reader.at(end)) {
        last = end;
        end += c.bytes;
    }
    const bool text_follows = reader.at(end).classes != kEnd;
    return text_follows && last > 0 ? last : end;
}

std::size_t first_gpt2(const Reader& reader) {
    if (const std::size_t end = contraction(reader.rest(0), Case::AsIs); end != 0) return end;
    const std::size_t begin = reader.byte(0) == ' ' ? 1 : 0;
    const std::uint8_t classes = reader.at(begin).classes;
    if ((classes & kLetter) != 0) return reader.run(begin, kLetter);
    if ((classes & kNumber) != 0) return reader.run(begin, kNumber);
    if (reader.is_other(begin)) return reader.run_of_others(begin);
    return white_space(reader);
}

std::size_t first_smollm(std::string_view text) {
    const utf8::Step step = utf8::first(text);
    if ((unicode::char_class(step.code) & kNumeric) != 0) return step.bytes;
    return first_gpt2(Reader{text, true});
}

/// Up to and with the last CR or LF of the white space at the start, or 0.
std::size_t white_space_with_newline(const Reader& reader) {
    std::size_t end = 0;
    const std::size_t run_end = reader.run(0, kSpace);
    for (std::size_t i = run_end; i > 0 && end == 0; --i) {
        if (is_newline(reader.byte(i - 1))) end = i;
    }
    return end;
}

std::size_t first_llama3(const Reader& reader, int numbers_max) {
    if (const std::size_t end = contraction(reader.rest(0), Case::Ignored); end != 0) return end;
    const Reader::Char first = reader.at(0);
    if ((first.classes & kLetter) != 0) return reader.run(0, kLetter);
    const bool may_lead = (first.classes & kNumber) == 0 && !is_newline(reader.byte(0));
    if (may_lead && (reader.at(first.bytes).classes & kLetter) != 0) {
        return reader.run(first.bytes, kLetter);
    }
    if ((first.classes & kNumber) != 0) {
        std::size_t end = 0;
        for (int n = 0; n < numbers_max && (reader.at(end).classes & kNumber) != 0; ++n) {
            end += reader.at(end).bytes;
        }
        return end;
    }
    const std::size_t begin = reader.byte(0) == ' ' ? 1 : 0;
    if (reader.is_other(begin)) {
        std::size_t end = reader.run_of_others(begin);
        while (is_newline(reader.byte(end))) ++end;
        return end;
    }
    if (const std::size_t end = white_space_with_newline(reader); end != 0) return end;
    return white_space(reader);
}

/// Capitals, then small letters, from `begin` on; letters without case and marks count as both. The
/// end, or `begin` if no small letter or letter without case is there (\p{Lu}* \p{Ll}+ as it
/// backtracks).
std::size_t capitals_then_small(const Reader& reader, std::size_t begin) {
    std::size_t end = begin, last_small = begin;
    for (Reader::Char c = reader.at(end); (c.classes & kUpper) != 0; c = reader.at(end)) {
        end += c.bytes;
        if ((c.classes & kLower) != 0) last_small = end;
    }
    const std::size_t small_end = reader.run(end, kLower);
    return small_end > end ? small_end : last_small;
}

std::size_t tekken_word(const Reader& reader) {
    const Reader::Char first = reader.at(0);
    const bool may_lead = (first.classes & (kLetter | kNumber)) == 0 && !is_newline(reader.byte(0));
    const std::size_t begin = may_lead ? first.bytes : 0;
    if (const std::size_t end = capitals_then_small(reader, begin); end > begin) return end;
    // A mark that leads may instead be all of the word.
    if (begin > 0 && (first.classes & kLower) != 0) return begin;
    const std::size_t end = reader.run(begin, kUpper);
    return end > begin ? end : 0;
}

std::size_t first_tekken(const Reader& reader) {
    if (const std::size_t end = tekken_word(reader); end != 0) return end;
    const Reader::Char first = reader.at(0);
    if ((first.classes & kNumber) != 0) return first.bytes;
    const std::size_t begin = reader.byte(0) == ' ' ? 1 : 0;
    if (reader.is_other(begin)) {
        std::size_t end = reader.run_of_others(begin);
        while (is_newline(reader.byte(end)) || reader.byte(end) == '/') ++end;
        return end;
    }
    if (const std::size_t end = white_space_with_newline(reader); end != 0) return end;
    return white_space(reader);
}

/// Where the first piece of `text` ends. A piece depends on what follows it.
std::size_t first_piece(PreTokenizer kind, std::string_view text) {
    switch (kind) {
        case PreTokenizer::SmolLm:
            return first_smollm(text);
        case PreTokenizer::Gpt2:
            return first_gpt2(Reader{text, false});
        case PreTokenizer::Llama3:
            return first_llama3(Reader{text, false}, 3);
        case PreTokenizer::Qwen2:
            return first_llama3(Reader{text, false}, 1);
        case PreTokenizer::Tekken:
            return first_tekken(Reader{text, false});
        case PreTokenizer::DeepSeekCoder:
        case PreTokenizer::DeepSeekLlm:
            break;
    }
    return 0;
}

}  // namespace

std::optional<PreTokenizer> pre_tokenizer_named(std::string_view name) {
    if (name == "smollm" || name == "starcoder" || name == "refact") return PreTokenizer::SmolLm;
    if (name == "gpt-2" || name == "gpt2") return PreTokenizer::Gpt2;
    if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") return PreTokenizer::Llama3;
    if (name == "dbrx" || name == "smaug-bpe") return PreTokenizer::Llama3;
    if (name == "qwen2") return PreTokenizer::Qwen2;
    if (name == "tekken") return PreTokenizer::Tekken;
    if (name == "deepseek-coder") return PreTokenizer::DeepSeekCoder;
    if (name == "deepseek-llm") return PreTokenizer::DeepSeekLlm;
    return std::nullopt;
}

void cut_pieces(PreTokenizer kind, std::string_view text, std::vector<std::string_view>& out) {
    if (kind == PreTokenizer::DeepSeekCoder) return cut_deepseek(DeepSeek::Coder, text, out);
    if (kind == PreTokenizer::DeepSeekLlm) return cut_deepseek(DeepSeek::Llm, text, out);
    while (!text.empty()) {
        const std::size_t end = first_piece(kind, text);
        PACE_CHECK(end > 0, "a pre-tokenizer always goes on");
        out.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
}

}  // namespace paceline
