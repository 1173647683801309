// The device of a process for its channels, and what links a device can have.
//
// A program links one platform with this subfolder: CUDA's libraries, or none
// (driver.hpp, nccl.hpp). Drivers and libraries are loaded at run time, and NCCL only for the first
// link that asks for it.
//
// Threads: the TensorDevice is the loop's; make_tensor_device() creates the device's context, so
// call it where the process sets up its device. The device outlives its links; memory of allocate()
// may outlive it.
#pragma once

#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline {

struct DeviceSettings {
    std::string nccl_library = {};  // PACELINE_NCCL_LIBRARY; empty: the usual places
};

/// Errors: Unsupported (no such device, no driver), System.
[[nodiscard]] Result<std::unique_ptr<TensorDevice>> make_tensor_device(
    int device, const DeviceSettings& settings = {});

struct LinkAbilities {
    bool exported = false;
    bool nccl = false;
    std::string why_no_exported;  // empty where there is no reason
    std::string why_no_nccl;
};

/// From attributes and the presence of libraries: makes no context, so it takes no memory of a
/// device. NCCL takes one rank of a communicator on a device: two processes on one need
/// NCCL_HOSTID.
[[nodiscard]] LinkAbilities link_abilities(int device, const DeviceSettings& settings = {});

}  // namespace paceline
