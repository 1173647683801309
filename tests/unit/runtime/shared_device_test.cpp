#include "runtime/simulation/shared_device.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using End = SharedDevice::End;

double alone(std::uint32_t /*others*/) {
    return 1.0;
}

SimTime at(std::int64_t nanoseconds) {
    return SimTime{nanoseconds};
}

}  // namespace

TEST_CASE("a job that is alone takes its own time") {
    SharedDevice device;
    device.begin(1, at(100), at(50), alone);
    CHECK(device.ends() == std::vector<End>{{1, at(150)}});
    device.end(1, at(150));
    CHECK(device.ends().empty());
    device.begin(1, at(200), at(30), alone);
    CHECK(device.ends() == std::vector<End>{{1, at(230)}});
}

TEST_CASE("jobs that overlap have half of the device each, and only while they overlap") {
    SharedDevice device;
    device.begin(1, at(0), at(10), alone);
    device.begin(2, at(4), at(2), alone);
    // 6 and 2 are left at 4; the second is done at 4 + 2 * 2.
    CHECK(device.ends() == std::vector<End>{{1, at(16)}, {2, at(8)}});
    device.end(2, at(8));
    // The first has done 2 of its 6 meanwhile.
    CHECK(device.ends() == std::vector<End>{{1, at(12)}});
}

TEST_CASE("three jobs have a third each") {
    SharedDevice device;
    for (const std::uint32_t who : {1U, 2U, 3U}) device.begin(who, at(0), at(10 * who), alone);
    CHECK(device.ends() == std::vector<End>{{1, at(30)}, {2, at(60)}, {3, at(90)}});
    device.end(1, at(30));
    // 10 and 20 are left.
    CHECK(device.ends() == std::vector<End>{{2, at(50)}, {3, at(70)}});
    device.end(2, at(50));
    CHECK(device.ends() == std::vector<End>{{3, at(60)}});
}

TEST_CASE("contention slows a job beyond its part of the device, by its own factor") {
    SharedDevice device;
    device.begin(1, at(0), at(12), [](std::uint32_t others) { return 1.0 + 0.5 * others; });
    device.begin(2, at(0), at(12), alone);
    CHECK(device.ends() == std::vector<End>{{1, at(36)}, {2, at(24)}});
    device.end(2, at(24));
    // A third of 24 is done.
    CHECK(device.ends() == std::vector<End>{{1, at(28)}});
}

TEST_CASE("the end of a process without a job changes nothing") {
    SharedDevice device;
    device.begin(1, at(0), at(10), alone);
    device.end(7, at(4));
    CHECK(device.ends() == std::vector<End>{{1, at(10)}});
}
