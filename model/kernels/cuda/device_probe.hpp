// Which CUDA devices this process can see: what `paceline --version` prints and what placement
// on GPUs starts from. Callable from plain C++; never fails, because "no driver" is an answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paceline {

struct CudaDevice {
    int index = 0;
    std::string name;
    int capability_major = 0;  // sm_90 is 9.0
    int capability_minor = 0;
    std::uint64_t memory_bytes = 0;
    bool runs_our_code = false;   // a kernel of this build ran on it and gave the right answer
    std::string pci_place = {};   // "0000:3b:00.0"; empty: on no bus (no real device)
    std::vector<int> peers = {};  // devices whose memory this one can reach
};

struct CudaProbe {
    std::string runtime;  // "13.0", of the toolkit this program was built with
    std::string problem;  // why there are no devices; empty if there are some
    std::vector<CudaDevice> devices;
};

[[nodiscard]] CudaProbe probe_cuda();

/// The same without running anything: `runs_our_code` is false. Makes no context, so it takes no
/// memory of any device.
[[nodiscard]] CudaProbe list_cuda();

}  // namespace paceline
