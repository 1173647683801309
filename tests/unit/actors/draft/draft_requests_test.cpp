#include "actors/draft/work/draft_requests.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

struct KnownRequests {
    void add(std::uint64_t id, std::uint32_t attempt) {
        const control::Begin begin{
            .request = RequestId{id}, .attempt = Attempt{attempt}, .payload = {}};
        requests.add(std::make_shared<DraftRequest>(begin, BeginPayload{request_of(3)}, plan, tools,
                                                    account));
    }
    [[nodiscard]] std::vector<std::uint64_t> turn() const {
        std::vector<std::uint64_t> ids;
        for (const auto& request : requests.longest_waiting_first())
            ids.push_back(request->id.value);
        return ids;
    }

    DraftPlan plan = plan_of({});
    DraftTools tools = with_lookup();
    DraftAccount account;
    DraftRequests requests;
};

}  // namespace

TEST_CASE("a request is found by its latest attempt alone, and a job's copy is not current") {
    KnownRequests known;
    known.add(4, 1);
    const DraftRequests::RequestPtr old = known.requests.latest(RequestId{4});
    REQUIRE(old);
    CHECK(known.requests.current(old));
    known.add(4, 2);
    CHECK(known.requests.size() == 1);
    CHECK_FALSE(known.requests.current(old));
    CHECK(known.requests.find({RequestId{4}, Attempt{1}, {}}) == nullptr);
    CHECK(known.requests.find({RequestId{4}, Attempt{2}, {}}) != nullptr);
    CHECK(known.requests.find({RequestId{5}, Attempt{2}, {}}) == nullptr);
    known.requests.erase(RequestId{4});
    CHECK(known.requests.latest(RequestId{4}) == nullptr);
    CHECK_FALSE(known.requests.current(old));
}

TEST_CASE("after a job for one request the others come first, in the order of their ids") {
    KnownRequests known;
    for (const std::uint64_t id : {9, 2, 5}) known.add(id, 1);
    CHECK(known.turn() == std::vector<std::uint64_t>{2, 5, 9});
    known.requests.served(RequestId{2});
    CHECK(known.turn() == std::vector<std::uint64_t>{5, 9, 2});
    known.requests.erase(RequestId{2});
    CHECK(known.turn() == std::vector<std::uint64_t>{5, 9});
    known.requests.served(RequestId{9});
    known.add(2, 2);
    CHECK(known.turn() == std::vector<std::uint64_t>{2, 5, 9});
}
