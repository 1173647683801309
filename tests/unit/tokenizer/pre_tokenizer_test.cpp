#include "model/tokenizer/pre_tokenizer.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace paceline {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(PreTokenizer kind, std::string_view text) {
    Pieces out;
    while (!text.empty()) {
        const std::size_t end = first_piece(kind, text);
        REQUIRE(end > 0);
        out.emplace_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return out;
}

}  // namespace

TEST_CASE("gpt2 keeps numbers whole and gives a word the space before it") {
    CHECK(pieces(PreTokenizer::Gpt2, "I'm 1234 years,  old") ==
          Pieces{"I", "'m", " 1234", " years", ",", " ", " old"});
    CHECK(pieces(PreTokenizer::Gpt2, "I'M") == Pieces{"I", "'", "M"});
}

TEST_CASE("smollm isolates every digit, and white space before one ends its text") {
    CHECK(pieces(PreTokenizer::SmolLm, "a 12  3b") == Pieces{"a", " ", "1", "2", "  ", "3", "b"});
    CHECK(pieces(PreTokenizer::SmolLm, "\u0663\u00BDx") == Pieces{"\u0663", "\u00BD", "x"});
    // Tolong Siki digits are younger than the library's regular expressions, not than its Digits.
    CHECK(pieces(PreTokenizer::SmolLm, "\U00011DE0\U00011DE1") ==
          Pieces{"\U00011DE0", "\U00011DE1"});
    CHECK(pieces(PreTokenizer::Gpt2, "\U00011DE0!") == Pieces{"\U00011DE0!"});
}

TEST_CASE("llama3 groups up to three numbers and lets one odd character lead a word") {
    CHECK(pieces(PreTokenizer::Llama3, "12345 (word) I'LL") ==
          Pieces{"123", "45", " (", "word", ")", " I", "'LL"});
    CHECK(pieces(PreTokenizer::Llama3, "'\u017Ft") == Pieces{"'\u017F", "t"});
}

TEST_CASE("llama3 ends white space and punctuation with their line breaks") {
    CHECK(pieces(PreTokenizer::Llama3, "end;\r\n\r\n  next") ==
          Pieces{"end", ";\r\n\r\n", " ", " next"});
    CHECK(pieces(PreTokenizer::Llama3, " \n \n  x") == Pieces{" \n \n", " ", " x"});
}

TEST_CASE("qwen2 takes numbers one by one") {
    CHECK(pieces(PreTokenizer::Qwen2, "x 42") == Pieces{"x", " ", "4", "2"});
}

TEST_CASE("names that mean something else to the file's maker are not known") {
    CHECK(pre_tokenizer_named("smollm") == PreTokenizer::SmolLm);
    CHECK(pre_tokenizer_named("gpt-2") == PreTokenizer::Gpt2);
    CHECK(pre_tokenizer_named("llama-bpe") == PreTokenizer::Llama3);
    CHECK(pre_tokenizer_named("qwen2") == PreTokenizer::Qwen2);
    CHECK(!pre_tokenizer_named("default"));  // three expressions of its own, not gpt2
    CHECK(!pre_tokenizer_named(""));
}

}  // namespace paceline
