#include "runtime/parent/affinity.hpp"

#include <algorithm>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/parent/own_cgroups.hpp"

using namespace paceline;

namespace {

Machine machine_of(std::vector<std::vector<int>> smt, std::optional<double> quota = {}) {
    Machine machine;
    machine.smt = std::move(smt);
    for (const auto& core : machine.smt)
        machine.allowed.insert(machine.allowed.end(), core.begin(), core.end());
    std::sort(machine.allowed.begin(), machine.allowed.end());
    machine.quota = quota;
    machine.online = 8;
    return machine;
}

}  // namespace

TEST_CASE("core lists are read and written as the kernel does") {
    CHECK(parse_core_list("0-3,8").value() == std::vector{0, 1, 2, 3, 8});
    CHECK(parse_core_list("5\n").value() == std::vector{5});
    CHECK(parse_core_list("2,1,1-2").value() == std::vector{1, 2});
    CHECK(format_core_list(std::vector{0, 1, 2, 3, 8}) == "0-3,8");
    CHECK(format_core_list(std::vector{5}) == "5");
    for (const char* bad :
         {"", "a", "1-", "-1", "3-1", "1,,2", "0-99999999999", "1 2", "0-9999999"}) {
        CHECK_FALSE(parse_core_list(bad).ok());
    }
}

TEST_CASE("a cgroup's quota is read in cores") {
    CHECK_FALSE(parse_cpu_max("max 100000\n").value().has_value());
    CHECK(parse_cpu_max("150000 100000\n").value() == 1.5);
    CHECK(parse_cpu_max("50000").value() == 0.5);
    for (const char* bad : {"", "x 100000", "0 100000", "100000 0", "-5 100"}) {
        CHECK_FALSE(parse_cpu_max(bad).ok());
    }
}

TEST_CASE("a control group is listed with those above it, and has whole controllers") {
    CHECK(with_groups_above("/a/b") == std::vector<std::string>{"/a/b", "/a", ""});
    CHECK(with_groups_above("/") == std::vector<std::string>{"/"});
    CHECK(OwnCgroup{"cpu,cpuacct", "/"}.has("cpu"));
    CHECK_FALSE(OwnCgroup{"cpuacct", "/"}.has("cpu"));
    CHECK_FALSE(OwnCgroup{"cpuset", "/"}.is_version_2());
    CHECK(OwnCgroup{"", "/"}.is_version_2());
}

TEST_CASE("default threads: one per physical core, no more than the quota pays for") {
    CHECK(machine_of({{0, 4}, {1, 5}, {2, 6}, {3, 7}}).default_threads() == 4);
    CHECK(machine_of({{0, 4}, {1, 5}, {2, 6}, {3, 7}}, 2.0).default_threads() == 2);
    CHECK(machine_of({{0}, {1}}, 0.3).default_threads() == 1);
    CHECK(machine_of({{0}}).default_threads() == 1);
}

TEST_CASE("threads take whole cores first and siblings last") {
    CHECK(machine_of({{0, 4}, {1, 5}, {2}}).preferred_order() == std::vector{0, 1, 2, 4, 5});
}

TEST_CASE("a core that is not there, or not ours, is named") {
    const Machine machine = machine_of({{0}, {2}});
    CHECK(check_cores(machine, std::vector{0, 2}, "stage x").ok());
    CHECK(check_cores(machine, std::vector{9}, "stage x").error().what ==
          "stage x: core 9 does not exist (this machine has cores 0-7)");
    CHECK(check_cores(machine, std::vector{1}, "stage x").error().what ==
          "stage x: core 1 is not allowed here (allowed: 0,2)");
    CHECK_FALSE(check_cores(machine, std::vector{-1}, "stage x").ok());
}

TEST_CASE("processes spin only on cores of their own") {
    const Machine machine = machine_of({{0}, {1}});
    CHECK(choose_spin(machine, std::vector<std::vector<int>>{{0}, {1}}) > 0);
    CHECK(choose_spin(machine, std::vector<std::vector<int>>{{0}, {0}}) == 0);
    CHECK(choose_spin(machine, std::vector<std::vector<int>>{{0}, {}}) == 0);
    CHECK(choose_spin(machine, std::vector<std::vector<int>>{{0}, {1}, {2}}) == 0);
    const std::vector<std::vector<int>> two_share{{0}, {0}, {1}};
    CHECK(choose_spin(machine, two_share) > 0);
    CHECK(cores_shared(two_share) == std::vector{true, true, false});
    CHECK(cores_shared(std::vector<std::vector<int>>{{0, 1}, {1, 2}, {3}, {}}) ==
          std::vector(4, true));
    CHECK(cores_shared(std::vector<std::vector<int>>{{0, 1}}) == std::vector{false});
    CHECK(choose_spin(machine_of({{0}, {1}}, 1.5), std::vector<std::vector<int>>{{0}, {1}}) == 0);
}

TEST_CASE("this machine can be read, and a thread pinned to one of its cores stays there") {
    const Machine machine = read_machine().value();
    REQUIRE_FALSE(machine.allowed.empty());
    CHECK(machine.physical_cores() >= 1);
    CHECK(machine.default_threads() >= 1);
    CHECK(machine.preferred_order().size() == machine.allowed.size());
    std::thread pinned{[&] {
        const std::vector<int> core{machine.allowed.back()};
        REQUIRE(pin_this_thread(core).ok());
        CHECK(read_machine().value().allowed == core);
        CHECK_FALSE(pin_this_thread(std::vector{8000}).ok());
        CHECK_FALSE(pin_this_thread({}).ok());
    }};
    pinned.join();
}
