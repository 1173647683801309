#include "model/tokenizer/pre_tokenizer.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace paceline {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(PreTokenizer kind, std::string_view text) {
    std::vector<std::string_view> cut;
    cut_pieces(kind, text, cut);
    return {cut.begin(), cut.end()};
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

TEST_CASE("tekken cuts where small letters meet capitals, by Unicode's classes") {
    CHECK(pieces(PreTokenizer::Tekken, "abÉcole XMLParser") == Pieces{"ab", "École", " XMLParser"});
    CHECK(pieces(PreTokenizer::Tekken, "helloWorld 12") == Pieces{"hello", "World", " ", "1", "2"});
    CHECK(pieces(PreTokenizer::Tekken, "ABC 你A e\u0301") == Pieces{"ABC", " 你", "A", " e\u0301"});
    CHECK(pieces(PreTokenizer::Tekken, "\u0301A") == Pieces{"\u0301", "A"});
    CHECK(pieces(PreTokenizer::Tekken, "a/b;//\n/x") == Pieces{"a", "/b", ";//\n/", "x"});
    CHECK(pieces(PreTokenizer::Tekken, "it's") == Pieces{"it", "'s"});
}

TEST_CASE("deepseek cuts again what an expression has cut") {
    CHECK(pieces(PreTokenizer::DeepSeekCoder, "if (a1 == 中文b)\r\n\n  x") ==
          Pieces{"if", " (", "a", "1", " ==", " ", "中文", "b", ")", "\r", "\n", "\n", " ", " x"});
    CHECK(pieces(PreTokenizer::DeepSeekLlm, "Don't 12½ \u3000。x  ") ==
          Pieces{"Don", "'", "t", " ", "1", "2", "½", " ", "\u3000。", "x", "  "});
}

TEST_CASE("names that mean something else to the file's maker are not known") {
    CHECK(pre_tokenizer_named("smollm") == PreTokenizer::SmolLm);
    CHECK(pre_tokenizer_named("gpt-2") == PreTokenizer::Gpt2);
    CHECK(pre_tokenizer_named("llama-bpe") == PreTokenizer::Llama3);
    CHECK(pre_tokenizer_named("qwen2") == PreTokenizer::Qwen2);
    CHECK(pre_tokenizer_named("tekken") == PreTokenizer::Tekken);
    CHECK(pre_tokenizer_named("refact") == PreTokenizer::SmolLm);
    CHECK(pre_tokenizer_named("dbrx") == PreTokenizer::Llama3);
    CHECK(!pre_tokenizer_named("default"));  // three expressions of its own, not gpt2
    CHECK(!pre_tokenizer_named(""));
}

}  // namespace paceline
