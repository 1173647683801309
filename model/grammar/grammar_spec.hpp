// GrammarSpec: the language that an answer must belong to, as a client states it.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace paceline {

enum class GrammarKind : std::uint8_t {
    None,
    Json,           // any JSON object; no text
    JsonSchema,     // a JSON schema
    Ebnf,           // rules in xgrammar's EBNF, which begin with `root`
    Regex,          // a regular expression, of the whole answer
    StructuralTag,  // xgrammar's structural tag, as JSON: free text with constrained parts
};

struct GrammarSpec {
    GrammarKind kind = GrammarKind::None;
    std::string text = {};

    [[nodiscard]] bool any() const { return kind != GrammarKind::None; }
    friend bool operator==(const GrammarSpec&, const GrammarSpec&) = default;
};

}  // namespace paceline
