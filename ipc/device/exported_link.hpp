// Links of transport Exported: the producer's device writes slots in the consumer's memory.
//
// The consumer creates one block and exports it; the offer is its sizes, its device and a
// descriptor:
//
//   offset 0                                     slots * stride       + 4096
//   +-------------------+-----------------------+--------------------+------------------+
//   | slot 0            | slot 1 ...            | proof page         | up to 2 MiB more |
//   +-------------------+-----------------------+--------------------+------------------+
//
// Peer access can be reported where writes get lost. So both ends prove it on the proof page before
// the first slot is used: the consumer writes words that follow from the offer's number, the
// producer reads them, writes its own and reads these back; the consumer looks for them when the
// first tensor is announced.
//
// Both ends are Open at once: slots are all that there is. What is published has arrived. The block
// is freed when both ends have unmapped it, so a dead consumer's lives until the producer's link
// ends. Destructors unmap, and wait for nothing.
#pragma once

#include <memory>

#include "ipc/device/driver.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline {

/// The consumer's end; fills `offer`. Errors: OutOfMemory, System.
[[nodiscard]] Result<std::unique_ptr<InLink>> open_exported_in(Driver& driver,
                                                               const LinkSpec& spec,
                                                               LinkOffer& offer);
/// The producer's end. Errors: Protocol for an offer that does not fit `spec`, Unsupported where
/// the device does not reach the memory, System.
[[nodiscard]] Result<std::unique_ptr<OutLink>> open_exported_out(Driver& driver,
                                                                 const LinkSpec& spec,
                                                                 const LinkOffer& offer);

}  // namespace paceline
