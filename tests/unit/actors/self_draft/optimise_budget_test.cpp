// The time that jobs which look for a better skip set may take.
#include "actors/self_draft/optimise_budget.hpp"

#include <doctest/doctest.h>

namespace paceline {
namespace {

using Micros = std::chrono::microseconds;

TEST_CASE("a job that was cancelled or only wrote a file does not make the next one look short") {
    OptimiseBudget budget{0.1, 32, 2};
    budget.job_ended(Micros{1'000}, true);
    budget.job_ended(Micros{10}, false);
    CHECK(budget.next_job(Micros{100'000}) == Micros{1'000});
    // 1,010 are spent: a job of 1,000 needs more than 20,100 of decoding.
    CHECK_FALSE(budget.allows(budget.next_job(Micros{20'100}), Micros{20'100}));
    CHECK(budget.allows(budget.next_job(Micros{20'200}), Micros{20'200}));
}

TEST_CASE("before the first whole job its time is estimated from a round's") {
    OptimiseBudget budget{0.1, 32, 2};
    for (int i = 0; i < 10; ++i) budget.round_ended();
    budget.job_ended(Micros{5}, false);
    CHECK(budget.next_job(Micros{10'000}) == Micros{16'000});
}

}  // namespace
}  // namespace paceline
