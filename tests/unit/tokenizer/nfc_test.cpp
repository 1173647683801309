#include "model/tokenizer/nfc.hpp"

#include <doctest/doctest.h>

namespace paceline {

using unicode::nfc;
using unicode::nfkc;

TEST_CASE("a letter and its mark become one character, in whatever order the marks stand") {
    CHECK(nfc("cafe\u0301") == "caf\u00E9");
    CHECK(nfc("\u1E9B\u0323") == "\u1E9B\u0323");
    CHECK(nfc("q\u0307\u0323") == "q\u0323\u0307");
    CHECK(nfc("s\u0307\u0323") == "\u1E69");
    CHECK(nfc("a\u0316\u0301") == "\u00E1\u0316");   // a mark of another class does not block
    CHECK(nfc("a\u0305\u0301") == "a\u0305\u0301");  // one of the same class does
}

TEST_CASE("singletons and composition exclusions stay apart or are replaced") {
    CHECK(nfc("\u212B") == "\u00C5");
    CHECK(nfc("\u0958") == "\u0915\u093C");
    CHECK(nfc("\u0344") == "\u0308\u0301");
    CHECK(nfc("\uFB2C") == "\u05E9\u05BC\u05C1");
}

TEST_CASE("Hangul is composed by arithmetic") {
    CHECK(nfc("\u1112\u1161\u11AB") == "\uD55C");
    CHECK(nfc("\uAC00\u11A8") == "\uAC01");
    CHECK(nfc("\uAC01\u11A8") == "\uAC01\u11A8");
    CHECK(nfc("\uAC00\u11A7") == "\uAC00\u11A7");  // U+11A7 is no final consonant
    CHECK(nfc("\uD55C") == "\uD55C");
}

TEST_CASE("in form KC what stands for others becomes these, and is composed with its neighbours") {
    CHECK(nfkc("\uFB01\u2460\u00BD x\u00B2") ==
          "fi1"
          "1\u20442 x2");
    CHECK(nfkc("\uFF76\uFF9E") == "\u30AC");  // half-width ka and its mark
    CHECK(nfkc("\u1E9B\u0323") == "\u1E69");  // both decompositions, then one character
    CHECK(nfkc("\u3131") == "\u1100");
    CHECK(nfkc("\uFFA1\uFFC2") == "\uAC00");  // half-width jamo become a syllable
    CHECK(nfkc("\u00A8") == " \u0308");
    CHECK(nfkc("\u3000") == " ");
    CHECK(nfkc("\uFDFA").size() == 33);  // the longest of all
    CHECK(nfkc("e\u0301 \u212B") == "\u00E9 \u00C5");
    CHECK(nfkc("ASCII <s>\n") == "ASCII <s>\n");
    CHECK(unicode::surely_nfkc("ASCII"));
    CHECK_FALSE(unicode::surely_nfkc("\u00A0"));
}

TEST_CASE("text below U+0300 is known to be in normal form without looking it up") {
    CHECK(unicode::surely_nfc("Stra\u00DFe \u02FF"));
    CHECK(!unicode::surely_nfc("e\u0301"));
    CHECK(nfc("Stra\u00DFe \u02FF") == "Stra\u00DFe \u02FF");
}

}  // namespace paceline
