#include "actors/decoding/exit_record.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr RequestId kOne{1};
constexpr Attempt kFirst{1};

}  // namespace

TEST_CASE("candidates are resolved when the text has come so far, along their own path only") {
    ExitRecord book;
    const auto resolved = [&](std::vector<TokenId> text) {
        return book.resolve(kOne, kFirst, text);
    };
    // After the text 7: either 1 or 2 next; after 1 comes 3; after 2 comes 4.
    const std::vector<ExitCandidates::Place> said = {{.at = 1, .tokens = {1, 2}},
                                                     {.at = 2, .path = {1}, .tokens = {3}},
                                                     {.at = 2, .path = {2}, .tokens = {4}}};
    book.add({.request = kOne, .attempt = kFirst, .places = said});
    CHECK(resolved({7}).empty());
    CHECK(resolved({7, 2}).empty());
    CHECK(resolved({7, 2, 4}) == std::vector<std::size_t>{2});
    CHECK(resolved({7, 2, 4}).empty());  // once
    book.add({.request = kOne, .attempt = kFirst, .places = said});
    CHECK(resolved({7, 9}) == std::vector<std::size_t>{0});
    book.add({.request = kOne, .attempt = kFirst, .places = {}});
    CHECK(resolved({7}) == std::vector<std::size_t>{0});
}

TEST_CASE("in a chain nothing is right after what was wrong") {
    ExitRecord book;
    for (const bool chained : {false, true}) {
        book.add({.request = kOne,
                  .attempt = kFirst,
                  .chained = chained,
                  .places = {{.at = 1, .tokens = {1}}, {.at = 2, .tokens = {2}}}});
    }
    const std::vector<TokenId> text{7, 9, 2};
    CHECK(book.resolve(kOne, kFirst, text) == std::vector<std::size_t>{1, 0});
}

TEST_CASE("looks of other requests wait, those of old attempts go, and there are never too many") {
    ExitRecord book;
    const std::vector<TokenId> text{7, 1};
    book.add({.request = RequestId{2}, .attempt = kFirst, .places = {{.at = 1, .tokens = {1}}}});
    book.add({.request = kOne, .attempt = kFirst, .places = {{.at = 1, .tokens = {1}}}});
    CHECK(book.resolve(kOne, Attempt{2}, text).empty());
    CHECK(book.resolve(kOne, kFirst, text).empty());
    CHECK(book.resolve(RequestId{2}, kFirst, text) == std::vector<std::size_t>{1});
    for (std::size_t i = 0; i < ExitRecord::kEvaluationsMax + 9; ++i)
        book.add({.request = kOne, .attempt = kFirst, .places = {{.at = 1, .tokens = {1}}}});
    CHECK(book.resolve(kOne, kFirst, text).size() == ExitRecord::kEvaluationsMax);
}
