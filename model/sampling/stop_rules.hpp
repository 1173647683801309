// StopRules: when an answer ends. StopMatcher: finds that end in the stream of tokens.
//
// An answer is read like a tape, byte by byte; the first byte at which a rule is met ends it.
// So the result does not depend on how the text is cut into tokens:
//   - a stop string ends the answer where its last byte appears; the string itself is not part
//     of the answer. Of several that end at the same byte the longest counts, so if one is the
//     beginning of another, the shorter one always wins.
//   - an end token ends it, and has no text.
//   - the token that reaches max_tokens belongs to the answer and is its last.
//
// Text that may turn out to be the beginning of a stop string is held back until it cannot.
// Fed with whole characters, the matcher releases whole characters.
//
// Owns its rules and the held text. One per answer; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

inline constexpr std::size_t kStopStringBytesMax = 1024;

struct StopRules {
    std::vector<TokenId> end_tokens = {};
    std::vector<std::string> stop_strings = {};  // at most kStopStringsMax, none empty, UTF-8
    std::int64_t max_tokens = -1;                // -1: no limit; otherwise >= 1
};

/// Errors: BadArgument naming the rule, its value and the allowed range.
[[nodiscard]] Status validate(const StopRules& rules);

enum class StopReason : std::uint8_t { None, EndToken, StopString, MaxTokens };

class StopMatcher {
public:
    /// `rules` has passed validate().
    explicit StopMatcher(StopRules rules);

    struct Step {
        std::string text;                      // now certain to belong to the answer
        StopReason reason = StopReason::None;  // not None: the answer ends with this token
    };

    /// Takes the next token and the text that became complete with it (Detokenizer::push; an end
    /// token's text is ignored). Precondition: the answer has not ended.
    [[nodiscard]] Step push(TokenId token, std::string_view text);

    /// Takes what the detokenizer still had (Detokenizer::finish) and releases what was held
    /// back. Call it once, after the last token, whatever the reason; a stop string may still be
    /// found. Returns the last text of the answer.
    [[nodiscard]] std::string finish(std::string_view rest);

    [[nodiscard]] StopReason reason() const { return reason_; }
    /// Tokens of the answer so far, the one that ended it included.
    [[nodiscard]] std::int64_t tokens() const { return tokens_; }

private:
    /// A stop string and how much of it the text so far ends with.
    struct Pattern {
        std::string text;
        std::vector<std::size_t> border;  // [i]: longest proper prefix that also ends text[0..i]
        std::size_t matched = 0;
    };

    /// Reads `text`; returns what it makes certain. Sets reason_ where a stop string completes.
    std::string read(std::string_view text);
    std::string release(std::size_t bytes);

    StopRules rules_;
    std::vector<Pattern> patterns_;
    std::string held_;  // read, not released: the beginning of a possible stop string
    StopReason reason_ = StopReason::None;
    bool finished_ = false;
    std::int64_t tokens_ = 0;
};

}  // namespace paceline
