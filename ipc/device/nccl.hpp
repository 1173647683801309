// Nccl: the functions of NCCL that links use, in their order and with their rules.
//
// Implementations: nccl_library.cpp loads libnccl.so.2 at run time; nccl_none.cpp has none. A
// program links one implementation; tests have another one.
//
// Communicators are non-blocking: after init(), send(), receive() and revoke() nothing may be
// called for the communicator but state(), until that says Success, and nothing may be put into the
// stream; abort() alone is always allowed. It blocks, for how long NCCL does not say.
//
// Threads: one at a time for all communicators of a device, in the device's context
// (Driver::enter).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "ipc/device/driver.hpp"

namespace paceline {

enum class NcclResult : int {  // with the numbers of nccl.h
    Success,
    UnhandledCudaError,
    SystemError,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    RemoteError,
    InProgress,
};

using NcclComm = void*;
using NcclId = std::array<std::byte, 128>;

class Nccl {
public:
    Nccl() = default;
    Nccl(const Nccl&) = delete;
    Nccl& operator=(const Nccl&) = delete;
    virtual ~Nccl() = default;

    [[nodiscard]] virtual int version() const = 0;  // 22809 is 2.28.9
    [[nodiscard]] virtual NcclResult unique_id(NcclId& id) = 0;
    /// One CTA, non-blocking.
    [[nodiscard]] virtual NcclResult init(NcclComm& comm,
                                          int ranks,
                                          const NcclId& id,
                                          int rank) = 0;
    [[nodiscard]] virtual NcclResult state(NcclComm comm, NcclResult& state) = 0;
    [[nodiscard]] virtual NcclResult send(
        const std::byte* from, std::size_t bytes, int peer, NcclComm comm, DeviceStream stream) = 0;
    [[nodiscard]] virtual NcclResult receive(
        std::byte* to, std::size_t bytes, int peer, NcclComm comm, DeviceStream stream) = 0;
    [[nodiscard]] virtual bool can_revoke() const = 0;
    [[nodiscard]] virtual NcclResult revoke(NcclComm comm) = 0;
    [[nodiscard]] virtual NcclResult abort(NcclComm comm) = 0;
    /// The library's last message about `comm`; may be empty.
    [[nodiscard]] virtual std::string last_error(NcclComm comm) = 0;
};

/// "remote error (6)"
[[nodiscard]] std::string nccl_text(NcclResult result);
/// "2.28.9"
[[nodiscard]] std::string nccl_version_text(int version);

inline constexpr int kNcclVersionMin = 21900;  // non-blocking point to point is usable from 2.19 on

/// `named`: a library's path, or empty for the usual places. The same object for every call.
/// Errors: Unsupported with every place and what was wrong there.
[[nodiscard]] Result<std::shared_ptr<Nccl>> open_nccl(const std::string& named);

}  // namespace paceline
