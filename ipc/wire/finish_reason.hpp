// FinishReason: why an answer has ended, from the verdict on the wire to the figures that are
// printed.
//
// The target decides up to Failed, and a verdict carries no other (docs/wire-format.md). What reads
// the text, or stops the answer from outside, adds the rest.
// Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace paceline {

enum class FinishReason : std::uint32_t {
    None,  // it goes on
    EndToken,
    MaxTokens,
    ContextFull,
    Failed,         // no token can be drawn
    GrammarFailed,  // the answer's grammar cannot be loaded, or cannot follow the answer
    StopString,
    Interrupted,  // stopped from outside, or given up
};

/// What GrammarFailed means to a user.
inline constexpr const char* kGrammarFailed =
    "the process of the last layers cannot load the grammar or follow the answer with it; it was "
    "compiled for another vocabulary or by another version of the library, or that process is of "
    "a build without grammars. Restart all processes of one build, without cached grammars";

/// As --stats prints it.
[[nodiscard]] constexpr const char* name_of(FinishReason reason) {
    constexpr std::array kNames{"none",   "end_token",      "max_tokens",  "context_full",
                                "failed", "grammar_failed", "stop_string", "interrupted"};
    const auto at = static_cast<std::size_t>(reason);
    return at < kNames.size() ? kNames[at] : "unknown";
}

}  // namespace paceline
