// Text: bytes, each with its origin: the template or the user.
//
// Every operation of a template keeps the origin of each byte, so that the tokenizer can take
// control tokens from what the template wrote and from nothing else. UTF-8 throughout; positions
// and lengths of templates count characters, as Python does.
// A plain value; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::jinja {

enum class Origin : char {
    Template = 't',  // words of the template, of the model file, of Paceline
    User = 'u'       // messages, tools, documents: whatever a request brought
};

class Text {
public:
    Text() = default;
    /// `bytes` are valid UTF-8.
    Text(std::string_view bytes, Origin origin)
        : bytes_{bytes}, origins_(bytes.size(), static_cast<char>(origin)) {}

    [[nodiscard]] const std::string& bytes() const { return bytes_; }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    [[nodiscard]] Origin origin(std::size_t at) const { return static_cast<Origin>(origins_[at]); }
    /// A character per byte, 't' or 'u'.
    [[nodiscard]] const std::string& origins() const { return origins_; }

    void append(const Text& other) {
        bytes_ += other.bytes_;
        origins_ += other.origins_;
    }
    void append(std::string_view bytes, Origin origin) {
        bytes_ += bytes;
        origins_.append(bytes.size(), static_cast<char>(origin));
    }
    [[nodiscard]] Text sub(std::size_t begin, std::size_t count = std::string::npos) const {
        Text part;
        part.bytes_ = bytes_.substr(begin, count);
        part.origins_ = origins_.substr(begin, count);
        return part;
    }

    /// It went through "| safe": as in Python, what is joined to it by "+" is escaped.
    [[nodiscard]] bool is_markup() const { return is_markup_; }
    void set_markup() { is_markup_ = true; }

    friend bool operator==(const Text&, const Text&) = default;

private:
    std::string bytes_;
    std::string origins_;
    bool is_markup_ = false;
};

/// Where each character of `text` begins, and its size at the end.
[[nodiscard]] std::vector<std::size_t> character_starts(std::string_view text);
[[nodiscard]] std::size_t count_characters(std::string_view text);

/// The text without the characters of `blanks` (Python's white space if empty) at its ends.
enum class Ends : unsigned char { Left = 1, Right = 2, Both = 3 };
[[nodiscard]] Text stripped(const Text& text, Ends ends, std::string_view characters = {});

/// Python's splitlines(): the lines without their ends.
[[nodiscard]] std::vector<Text> split_lines(const Text& text);
/// Python's split() without a separator; parts_max < 0: all.
[[nodiscard]] std::vector<Text> split_blanks(const Text& text, long long splits_max);

enum class Case : unsigned char { Lower, Upper, Title };
/// Each character alone in another case, as Python's upper() and lower() but for the final sigma.
[[nodiscard]] Text in_case(const Text& text, Case wanted);

}  // namespace paceline::jinja
