#include "model/tokenizer/added_tokens.hpp"

#include <doctest/doctest.h>

namespace paceline {
namespace {

AddedTokens tokens() {
    AddedTokens added;
    added.add("<ab>", 1);
    added.add("<abc", 2);
    added.add("<a", 3);
    added.add("b><", 4);
    return added;
}

}  // namespace

TEST_CASE("of the matches that begin leftmost the longest counts") {
    const AddedTokens added = tokens();
    CHECK(added.next("x<abcd", 0).token == 2);
    CHECK(added.next("x<ab>", 0).token == 1);
    CHECK(added.next("x<abx", 0).token == 3);
    const AddedTokens::Match match = added.next("x<ab><", 0);  // "b><" begins later
    CHECK(match.token == 1);
    CHECK(match.begin == 1);
    CHECK(match.end == 5);
}

TEST_CASE("the search goes on from where it is told to") {
    CHECK(tokens().next("<ab><", 2).token == 4);
}

TEST_CASE("where nothing matches the match is empty and at the end") {
    const AddedTokens::Match match = tokens().next("<b <", 0);
    CHECK(match.begin == 4);
    CHECK(match.end == 4);
}

}  // namespace paceline
