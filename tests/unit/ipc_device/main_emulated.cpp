// main() of the tests of links on the emulated device: two devices, and misuse is collected. What
// was not expected by a test makes the program fail.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <optional>

#include <doctest/doctest.h>

#include "tests/emulated/driver/emulation.hpp"

#include "peer_process.hpp"

int main(int argc, char** argv) {
    namespace emulated = paceline::emulated;
    emulated::set_devices(2);
    // A peer does not collect: its misuse ends it, and its test fails.
    if (const std::optional<int> code = paceline::test::run_as_peer(argc, argv)) return *code;
    emulated::collect_misuse();
    const int failed = doctest::Context{argc, argv}.run();
    int misused = 0;
    for (const std::string& what : emulated::take_misuse()) {
        std::printf("misuse: %s\n", what.c_str());
        misused = 1;
    }
    return failed != 0 ? failed : misused;
}
