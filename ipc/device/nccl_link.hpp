// Links of transport Nccl: staging slots at the producer, landing slots at the consumer.
//
// The consumer makes the communicator's id; the offer is that, the sizes, and a socket to the other
// end. Communicator and states: nccl_channel.hpp. Slots lie in the memory of each end's own device.
//
// Destructors hand everything to the issuing thread, which closes the communicator and frees the
// memory (nccl_issuer.hpp): they wait for nothing. If closing does not end, poll() of every link of
// the device reports that this process has to end.
#pragma once

#include <memory>

#include "ipc/device/driver.hpp"
#include "ipc/device/nccl.hpp"
#include "ipc/device/nccl_issuer.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline {

/// What NCCL links of a device share.
struct NcclDevice {
    std::shared_ptr<Driver> driver;
    std::shared_ptr<Nccl> nccl;
    std::shared_ptr<NcclIssuer> issuer;
};

/// The consumer's end; fills `offer`. Errors: OutOfMemory, System.
[[nodiscard]] Result<std::unique_ptr<InLink>> open_nccl_in(const NcclDevice& device,
                                                           LinkSpec spec,
                                                           LinkOffer& offer);
/// The producer's end. Errors: Protocol for an offer that does not fit `spec`, Unsupported for one
/// of another version of NCCL, OutOfMemory, System.
[[nodiscard]] Result<std::unique_ptr<OutLink>> open_nccl_out(const NcclDevice& device,
                                                             LinkSpec spec,
                                                             LinkOffer offer);

}  // namespace paceline
