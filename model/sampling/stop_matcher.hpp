// StopMatcher: finds the stop string that ends an answer, in the stream of its text.
//
// An answer is read byte by byte; a stop string ends it where its last byte appears, and
// is not part of it. So the result does not depend on how the text is divided into tokens. Of
// several that end at the same byte the longest is removed; if one is a prefix of another, the
// shorter one always matches first.
//
// Text that may be the beginning of a stop string is held back until it cannot be one.
// Given whole characters, the matcher releases whole characters. Ends by tokens (end token, limits)
// are in actors/decoding/finish_rule.hpp.
//
// Owns its patterns and the held text. One per answer; not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

inline constexpr std::size_t kStopStringBytesMax = 1024;

/// At most kStopStringsMax, none empty, UTF-8.
/// Errors: BadArgument naming the string's place, its value and the allowed range.
[[nodiscard]] Status validate_stop_strings(std::span<const std::string> stop_strings);

class StopMatcher {
public:
    /// `stop_strings` have passed validate_stop_strings().
    explicit StopMatcher(std::span<const std::string> stop_strings);

    /// Takes the text that became complete with a token (Detokenizer::push), and returns what now
    /// certainly belongs to the answer. Precondition: no stop string has been found.
    [[nodiscard]] std::string push(std::string_view text);

    /// Takes what the detokenizer still had (Detokenizer::finish) and releases what was held
    /// back. Call it once, after the last token; a stop string may still be found. Returns the
    /// last text of the answer.
    [[nodiscard]] std::string finish(std::string_view rest);

    /// Whether a stop string has ended the answer.
    [[nodiscard]] bool found() const { return found_; }

private:
    /// A stop string and how much of it the text so far ends with.
    struct Pattern {
        std::string text;
        std::vector<std::size_t> border;  // [i]: longest proper prefix that also ends text[0..i]
        std::size_t matched = 0;
    };

    /// Reads `text`; returns what it makes certain.
    std::string read(std::string_view text);
    std::string release(std::size_t bytes);

    std::vector<Pattern> patterns_;
    std::string held_;  // read, not released: the beginning of a possible stop string
    bool found_ = false;
    bool finished_ = false;
};

}  // namespace paceline
