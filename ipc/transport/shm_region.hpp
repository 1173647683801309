// ShmFile and ShmRegion: anonymous shared memory that can never change its size under a reader.
//
// A memfd, allocated in full and then sealed against shrinking, growing and unsealing: no peer
// can truncate it (SIGBUS), it has no name in a file system, and the kernel frees it when the last
// holder has ended, also by a crash. Passed between processes as a descriptor (control_socket.hpp).
// Only where memory files cannot be sealed (memory_file.hpp) are unsealed ones made and accepted.
//
// ShmFile owns the file without mapping it; ShmRegion owns one mapping. Both are move-only.
// Ring, pool and doorbell define the layout of the bytes and when each process may access them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"

namespace boost::interprocess {
class mapped_region;
}

namespace paceline {

class ShmFile {
public:
    ShmFile() = default;
    /// `bytes` of zeros, beginning with `head` (the layout's header), sealed. Errc::OutOfMemory
    /// if the memory cannot be had now, so that it cannot fail later, at the first touch.
    [[nodiscard]] static Result<ShmFile> create(const std::string& name,
                                                std::size_t bytes,
                                                std::span<const std::byte> head);

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }

private:
    OwnedFd fd_;
    std::size_t bytes_ = 0;
};

class ShmRegion {
public:
    ShmRegion() = default;
    /// Maps a file made by ShmFile::create, here or in another process, and touches every page.
    /// Before that it is checked: Errc::Protocol if a seal is missing or it is smaller than
    /// `bytes_min`. The descriptor is not kept.
    [[nodiscard]] static Result<ShmRegion> attach(int fd, std::size_t bytes_min);

    [[nodiscard]] std::span<std::byte> bytes() const;

private:
    struct Unmap {
        void operator()(boost::interprocess::mapped_region* region) const;
    };
    std::unique_ptr<boost::interprocess::mapped_region, Unmap> region_;
};

}  // namespace paceline
