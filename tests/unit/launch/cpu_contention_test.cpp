#include "launch/base/cpu_contention.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("the busy time of cores is all but idle and waiting for input and output") {
    const char* const stat =
        "cpu  400 0 0 900 0 0 0 0 0 0\n"
        "cpu0 100 10 20 500 7 1 2 3 50 0\n"
        "cpu1 300 0 0 400 0 0 0 0 0 0\n"
        "intr 12345\n";
    CHECK(busy_seconds(stat, {0}, 100.0) == doctest::Approx(1.36));
    CHECK(busy_seconds(stat, {0, 1}, 100.0) == doctest::Approx(4.36));
    CHECK(!busy_seconds(stat, {0, 2}, 100.0));
    CHECK(!busy_seconds("", {0}, 100.0));
    CHECK(!busy_seconds("cpu0 100 10\n", {0}, 100.0));
}

TEST_CASE("a process has computed its user and its system time, whatever its name") {
    const char* const stat =
        "42 (a (b) c 1 2 3) S 1 42 42 0 -1 4194560 10 20 30 40 250 50 7 8 20 0 4 0";
    CHECK(process_seconds(stat, 100.0) == doctest::Approx(3.0));
    CHECK(!process_seconds("42", 100.0));
    CHECK(!process_seconds("42 (x) S 1 2", 100.0));
}

TEST_CASE("little load of others is no matter, more is told with what helps") {
    CHECK(contention_note(0.1, 2, false).empty());
    const std::string plain = contention_note(0.94, 2, false);
    CHECK(plain.find("0.9 of the 2 cores") != std::string::npos);
    CHECK(plain.find("-t") != std::string::npos);
    CHECK(contention_note(0.94, 2, true).find("`cores`") != std::string::npos);
}

TEST_CASE("nothing is said about less than a second") {
    const CpuContention load;
    CHECK(!load.cores());
}
