// What a table of `paceline check` says of each prompt.
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launch/check/report.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// The table of one prompt whose plain answer is 1 2 3.
std::string table_of(Answer answer) {
    CheckResult result;
    result.plain.resize(1);
    result.plain[0].ids = {1, 2, 3};
    result.answers.push_back(std::move(answer));
    CheckTask task;
    task.prompts = {{.id = "one"}};
    return check_table(result, task);
}

bool says(const std::string& table, const std::string& what) {
    return table.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("an equal answer is said to be equal, and another one by what differs") {
    Answer answer;
    answer.ids = {1, 2, 3};
    const std::string equal = table_of(answer);
    CHECK(says(equal, "  equal\n"));
    CHECK(!says(equal, "instead of"));
    answer.scores.resize(1);
    CHECK(says(table_of(answer), "the same tokens instead of the same log probabilities"));
    answer.ids = {1, 5, 3};
    CHECK(says(table_of(answer), "token 1: 5 instead of 2"));
    answer.status = Error{Errc::BadArgument, "the prompt is too long"};
    CHECK(says(table_of(answer), "no answer: the prompt is too long"));
}
