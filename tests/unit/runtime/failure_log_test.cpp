#include "runtime/parent/failure_log.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

TEST_CASE("a single failure is told by the error that ends the run alone") {
    FailureLog log;
    CHECK(log.text().empty());
    log.note(Micros{5}, "stage 'draft' (process 7) exited with code 3");
    CHECK(log.text().empty());
}

TEST_CASE("the first failure is told with what the stage wrote, the others in a line each") {
    FailureLog log;
    log.note(Micros{1'000'000}, "stage 'early-verify' was killed by signal 11\n    out of cake");
    log.note(Micros{1'300'000}, "stage 'final-verify' failed: NCCL receive timed out\n    noise");
    CHECK(log.text() ==
          "\nthe first failure: stage 'early-verify' was killed by signal 11\n    out of cake"
          "\n0.3 s after it: stage 'final-verify' failed: NCCL receive timed out");
}

TEST_CASE("of many failures the first and the newest are kept") {
    FailureLog log;
    for (int i = 0; i < 100; ++i) log.note(Micros{i * 1'000'000}, "number " + std::to_string(i));
    const std::string text = log.text();
    CHECK(text.find("the first failure: number 0\n91 more are left out here\n92.0 s after it: ") !=
          std::string::npos);
    CHECK(text.find("number 91") == std::string::npos);
    CHECK(text.find("99.0 s after it: number 99") != std::string::npos);
}
