#include "actors/conductor/commit_log.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "ipc/base/limits.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr RequestId kOne{1};
const std::vector<TokenId> kPrompt{10, 11, 12};

msg::Verdict verdict(Attempt attempt, Position base, std::vector<TokenId> tokens) {
    msg::Verdict made{};
    made.route = {.request = kOne, .attempt = attempt, .epoch = Epoch{1}};
    made.base = base;
    made.count = static_cast<std::uint32_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), made.tokens.begin());
    return made;
}

}  // namespace

TEST_CASE("a commit counts only if the attempt is current and the position is next") {
    CommitLog log;
    const Attempt first = log.open(kOne, kPrompt).value();
    CHECK(log.commit(verdict(first, 3, {1, 2})).kind == CommitKind::Counts);
    CHECK(log.commit(verdict(first, 3, {1, 2})).kind == CommitKind::Stale);  // again
    CHECK(log.commit(verdict(first, 6, {3})).kind == CommitKind::Gap);
    const Attempt second = log.restart(kOne).value();
    CHECK(log.commit(verdict(first, 5, {3})).kind == CommitKind::Stale);  // of the old attempt
    const Commit counts = log.commit(verdict(second, 5, {4}));
    CHECK(counts.kind == CommitKind::Counts);
    CHECK(std::vector<TokenId>(counts.tokens.begin(), counts.tokens.end()) ==
          std::vector<TokenId>{4});
    const auto text = log.text(kOne);
    CHECK(std::vector<TokenId>(text.begin(), text.end()) ==
          std::vector<TokenId>{10, 11, 12, 1, 2, 4});
    CHECK(log.answer(kOne).size() == 3);
}

TEST_CASE("nothing counts after the answer has ended or the request is closed") {
    CommitLog log;
    const Attempt attempt = log.open(kOne, kPrompt).value();
    msg::Verdict last = verdict(attempt, 3, {1});
    last.finish = FinishReason::EndToken;
    CHECK(log.commit(last).finish == FinishReason::EndToken);
    CHECK(log.commit(verdict(attempt, 4, {2})).kind == CommitKind::Stale);
    log.close(kOne);
    CHECK(log.commit(verdict(attempt, 4, {2})).kind == CommitKind::Stale);
    CHECK(log.text(kOne).empty());
}

TEST_CASE("a request cannot be opened twice, nor restarted when unknown, nor without bound") {
    CommitLog log;
    CHECK_FALSE(log.restart(kOne));
    CHECK(log.open(kOne, kPrompt));
    CHECK_FALSE(log.open(kOne, kPrompt));
    for (std::uint64_t i = 2; i <= kRequestsMax; ++i) CHECK(log.open(RequestId{i}, kPrompt));
    CHECK_FALSE(log.open(RequestId{1000}, kPrompt));
}
