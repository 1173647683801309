// The GPUs that this process can see, as a GpuMachine: CUDA_VISIBLE_DEVICES has chosen and numbered
// them.
//
// Near cores are those that the kernel names for the GPU's place on the PCI bus. Of links it is
// known whether two GPUs reach each other's memory (Peer, else Host), not how fast.
// Any thread; reads /sys.
#pragma once

#include <string>

#include "launch/config/machine_file.hpp"
#include "launch/load/gpu.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {

/// `pci_folder`: another one for tests.
[[nodiscard]] GpuMachine found_machine(const GpuInventory& inventory,
                                       const Machine& host,
                                       const std::string& pci_folder = "/sys/bus/pci/devices");

}  // namespace paceline
