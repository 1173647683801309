// main() of the gpu_* programs: the tests of kernels and backend on a real GPU. Where there is none
// they say so, and how many tests that leaves out, and succeed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <vector>

#include <doctest/doctest.h>

#include "model/kernels/cuda/device_probe.hpp"

int main(int argc, char** argv) {
    const paceline::CudaProbe probe = paceline::probe_cuda();
    const bool runs = !probe.devices.empty() && probe.devices.front().runs_our_code;
    doctest::Context context{argc, argv};
    if (!runs) {
        const char* why = probe.devices.empty() ? probe.problem.c_str()
                                                : "device 0 does not run this build's code";
        std::printf("skipped: no device: %s\nskipped tests: ", why);
        std::fflush(stdout);
        std::vector<const char*> arguments(argv, argv + argc);
        arguments.push_back("--count");  // prints how many there are, and runs none
        context.applyCommandLine(argc + 1, arguments.data());
        context.run();
        return 0;
    }
    std::printf("on %s\n", probe.devices.front().name.c_str());
    std::fflush(stdout);
    return context.run();
}
