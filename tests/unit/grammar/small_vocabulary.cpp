#include "small_vocabulary.hpp"

#include <algorithm>

#include <doctest/doctest.h>

namespace paceline {

GrammarVocabulary small_vocabulary() {
    GrammarVocabulary made;
    made.texts = {
        "<unknown>", "<end>", "<call>", "",     "a",    "b",    "c",        "d",    "ab",   "ba",
        "abc",       "bc",    "aa",     "bb",   "0",    "1",    "2",        "3",    "12",   "01",
        ",",         ":",     ".",      "-",    "{",    "}",    "[",        "]",    "\"",   "\\",
        " ",         "  ",    "\n",     "\t",   "{\"",  "\":",  "\": ",     ", ",   ", \"", "\"}",
        "]}",        "}}",    "tru",    "true", "e",    "f",    "false",    "null", "n",    "t",
        "r",         "u",     "l",      "s",    "\xc3", "\xa4", "\xc3\xa4", "x",    "y",    "a\""};
    made.control.assign(made.texts.size(), false);
    made.control[0] = made.control[1] = made.control[2] = true;
    made.vocab_size = 70;  // rows of logits are padded
    return made;
}

TokenId small_token(std::string_view text) {
    const GrammarVocabulary vocabulary = small_vocabulary();
    const auto found = std::find(vocabulary.texts.begin(), vocabulary.texts.end(), text);
    REQUIRE(found != vocabulary.texts.end());
    return static_cast<TokenId>(found - vocabulary.texts.begin());
}

Result<std::unique_ptr<GrammarMatcher>> small_matcher(const GrammarSpec& spec,
                                                      const std::vector<TokenId>& end_tokens) {
    const Result<CompiledGrammarPtr> compiled =
        make_grammar_compiler(small_vocabulary())->compile(spec);
    if (!compiled) return compiled.error();
    return make_grammar_loader(small_vocabulary())->match(compiled.value(), end_tokens);
}

}  // namespace paceline
