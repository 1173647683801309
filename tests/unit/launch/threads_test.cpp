// How -t becomes threads and cores.
#include <doctest/doctest.h>

#include "launch/load/load_model.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

/// Two physical cores with two threads each.
Machine two_cores_with_smt() {
    Machine machine;
    machine.allowed = {0, 1, 2, 3};
    machine.smt = {{0, 2}, {1, 3}};
    machine.online = 4;
    return machine;
}

}  // namespace

TEST_CASE("by default there is a thread for each physical core, pinned to one of its halves") {
    const ThreadPlan plan = plan_threads(two_cores_with_smt(), 0);
    CHECK(plan.threads == 2);
    CHECK(plan.cores == std::vector{0, 1});
    CHECK(plan.usable_cores == 4);
}

TEST_CASE("more threads than physical cores take the siblings") {
    CHECK(plan_threads(two_cores_with_smt(), 3).cores.size() == 3);
    CHECK(plan_threads(two_cores_with_smt(), 4).cores.size() == 4);
}

TEST_CASE("more threads than cores are not pinned") {
    const ThreadPlan plan = plan_threads(two_cores_with_smt(), 5);
    CHECK(plan.threads == 5);
    CHECK(plan.cores.empty());
}

TEST_CASE("one thread on a machine of one core") {
    Machine machine;
    machine.allowed = {3};
    machine.smt = {{3}};
    const ThreadPlan plan = plan_threads(machine, 0);
    CHECK(plan.threads == 1);
    CHECK(plan.cores == std::vector{3});
}

TEST_CASE("the context is what was asked for, else the model's own up to the default") {
    ModelConfig config;
    ModelOptions options;
    config.context_length = 512;
    CHECK(context_of(options, config) == 512);
    config.context_length = 131072;
    CHECK(context_of(options, config) == kContextDefault);
    options.context = 100;
    CHECK(context_of(options, config) == 100);
}
