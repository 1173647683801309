#include "launch/api/text_spans.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr TokenOrigin kOwn = TokenOrigin::Target;
constexpr TokenOrigin kCandidate = TokenOrigin::Lookup;

TEST_CASE("spans: neighbouring tokens of one origin are one") {
    AnswerStream stream;
    stream.append(TokenId{1}, "The", kOwn);
    stream.append(TokenId{2}, " sky", kCandidate);
    stream.append(TokenId{3}, " is", kCandidate);
    stream.append(TokenId{4}, " blue", kOwn);
    CHECK(text_spans(stream.piece(0)) ==
          json::array({{{"text", "The"}, {"tokens", 1}, {"accepted", false}, {"by", "target"}},
                       {{"text", " sky is"}, {"tokens", 2}, {"accepted", true}, {"by", "lookup"}},
                       {{"text", " blue"}, {"tokens", 1}, {"accepted", false}, {"by", "target"}}}));
    CHECK(text_spans(stream.piece(2)) ==
          json::array({{{"text", " is"}, {"tokens", 1}, {"accepted", true}, {"by", "lookup"}},
                       {{"text", " blue"}, {"tokens", 1}, {"accepted", false}, {"by", "target"}}}));
}

TEST_CASE("spans: a token without text counts, and text without token is none's") {
    AnswerStream stream;
    stream.append(TokenId{1}, "", kCandidate);
    stream.append(TokenId{2}, "\xc3\xa9", kOwn);
    stream.end("!", {}, {});
    CHECK(text_spans(stream.piece(0)) ==
          json::array({{{"text", ""}, {"tokens", 1}, {"accepted", true}, {"by", "lookup"}},
                       {{"text", "\xc3\xa9"}, {"tokens", 1}, {"accepted", false}, {"by", "target"}},
                       {{"text", "!"}, {"tokens", 0}, {"accepted", false}, {"by", "target"}}}));
    CHECK(text_spans(AnswerPiece{}) == json::array());
}

}  // namespace
}  // namespace paceline::serve
