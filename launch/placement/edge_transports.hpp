// Chooses the transport of the tensors of each edge, with the reason that the table shows.
//
//     an end on the CPU, or transport = "host"             host
//     features of an EAGLE draft                          host
//     on two machines                                     host, and the relays copy it
//     both ends in one process, on one GPU                 local
//     both on one GPU, or on two that reach each other     exported
//     else, where the library is found                     nccl
//     else                                                 host
//
// `transport` of [pipeline] forces one for all edges between GPUs of two processes; if it is not
// possible it is refused with the reason. A process has one device for its tensors: one that
// computes on two uses the host. Pure functions of values.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/machine_file.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/load/gpu_links.hpp"
#include "launch/placement/placement.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

/// The links and transports of the machine.
struct DevicePaths {
    const GpuMachine& machine;  // of its links
    const GpuLinks& links;
};

/// The edge of a placement with its transport.
struct EdgeTransport {
    StageId from;
    StageId to;
    std::string reason;  // "both on cuda:0"
};

/// Sets transport and name of each edge that has tensors, and gives their reasons in the same
/// order.
/// Errors: BadArgument naming file, edge, transport and reason.
[[nodiscard]] Result<std::vector<EdgeTransport>> choose_transports(std::vector<EdgeSpec>& edges,
                                                                   const Placement& placement,
                                                                   const PipelineConfig& config,
                                                                   const DevicePaths& ways);

/// "early -> final, hidden states: cuda:0 to cuda:1 (link nvlink, 450 GB/s), exported: cuda:0 and
/// cuda:1 reach each other", a line for each edge with tensors; and one for each stage on GPUs that
/// do not reach each other.
[[nodiscard]] std::string transports_text(const std::vector<EdgeSpec>& edges,
                                          const std::vector<EdgeTransport>& ways,
                                          const Placement& placement,
                                          const GpuMachine& machine);

/// Whether a stage is on a GPU; otherwise all transports are host.
[[nodiscard]] bool has_gpus(const Placement& placement);

}  // namespace paceline
