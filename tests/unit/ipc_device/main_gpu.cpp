// main() of gpu_links: the tests of links on real devices. Where there is none it says so, and how
// many tests that leaves out, and succeeds.
//
// NCCL refuses two ranks on one device of a host. Two processes that name different hosts may share
// one; they then talk over sockets, so this shows that the calls are right, and nothing of their
// speed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "peer_process.hpp"

namespace {

void share_a_device(bool peer) {
    (void)setenv("NCCL_HOSTID", peer ? "paceline-producer" : "paceline-consumer", 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    (void)setenv("NCCL_IB_DISABLE", "1", 1);
}

}  // namespace

int main(int argc, char** argv) {
    const bool peer = paceline::test::is_peer(argc, argv);
    if (!paceline::open_driver(1).ok()) share_a_device(peer);
    if (peer) return paceline::test::run_as_peer(argc, argv).value_or(1);
    doctest::Context context{argc, argv};
    if (const paceline::Status there = paceline::exports_memory(0); !there) {
        std::printf("skipped: no device: %s\nskipped tests: ", there.error().what.c_str());
        std::fflush(stdout);
        std::vector<const char*> arguments(argv, argv + argc);
        arguments.push_back("--count");  // prints how many there are, and runs none
        context.applyCommandLine(argc + 1, arguments.data());
        (void)context.run();
        return 0;
    }
    return context.run();
}
