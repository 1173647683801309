// How the ranks of an emulated communicator find each other: an id, a listener, a memory file.
//
// make_id() opens a listener in the caller, as ncclGetUniqueId() does; the id names it and holds a
// secret. Every rank connects and waits, without limit, until all have come; then each gets the
// same memory file. A rank of another size, version or number that is taken fails for all. A
// listener whose process is gone refuses.
//
// Unlike NCCL's, a listener that not all ranks called ends with end_listener().
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>

#include "ipc/base/result.hpp"
#include "ipc/device/nccl.hpp"
#include "ipc/transport/owned_fd.hpp"

namespace paceline::emulated {

[[nodiscard]] NcclResult make_id(NcclId& id);
/// Waits for all ranks; InProgress if `stop` was set meanwhile. The file has `bytes` zeros.
[[nodiscard]] NcclResult meet(const NcclId& id,
                              int ranks,
                              int rank,
                              std::size_t bytes,
                              const std::atomic<bool>& stop,
                              OwnedFd& file);
void end_listener(const NcclId& id);

}  // namespace paceline::emulated
