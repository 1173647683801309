#include "ipc/transport/shm_region.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <new>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <vector>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include "ipc/base/denied_call.hpp"
#include "ipc/base/memory_file.hpp"
#include "ipc/base/write_all.hpp"

namespace paceline {
namespace {

namespace bip = boost::interprocess;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kZerosAtOnce = std::size_t{1} << 20;

/// What Boost.Interprocess asks of a mappable object; it has no memfd of its own.
struct MemfdMapping {
    int fd;
    [[nodiscard]] bip::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
    [[nodiscard]] bip::mode_t get_mode() const { return bip::read_write; }
};

Error failed(const char* call, const std::string& name) {
    return {Errc::System, std::string{call} + " for shared memory '" + name +
                              "' failed: " + std::strerror(errno)};
}

/// Of this machine; nothing where sysinfo is denied (sysconf() answers 0 or a random number then).
std::optional<std::size_t> physical_bytes() {
    struct sysinfo info {};
    if (::sysinfo(&info) != 0) return std::nullopt;
    return std::size_t{info.totalram} * info.mem_unit;
}

/// Gives the file its pages: 0, or the error. Zeros are written where fallocate is denied.
int allocate(int fd, std::size_t bytes) {
    const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    if (!is_denied(error)) return error;
    const std::vector<std::byte> zeros(std::min(bytes, kZerosAtOnce));
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t part = std::min(bytes - done, zeros.size());
        const ssize_t count = ::pwrite(fd, zeros.data(), part, static_cast<off_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return count < 0 ? errno : ENOSPC;
        done += static_cast<std::size_t>(count);
    }
    return 0;
}

}  // namespace

Result<ShmFile> ShmFile::create(const std::string& name,
                                std::size_t bytes,
                                std::span<const std::byte> head) {
    PACE_CHECK(head.size() <= bytes, "a header longer than its shared memory");
    // Allocation stops at no limit of its own: asked for more than there is, the kernel would
    // start to kill processes.
    const std::optional<std::size_t> physical = physical_bytes();
    if (physical && bytes > *physical / 2) {
        return Error{
            Errc::OutOfMemory,
            fmt::format(
                "shared memory '{}' of {} bytes is over half of this machine's memory ({} bytes)",
                name, bytes, *physical)};
    }
    ShmFile file;
    file.bytes_ = bytes;
    file.fd_.reset(open_memory_file("paceline-" + name));
    if (!file.fd_) return failed("memfd_create", name);
    // Allocated now: a page that cannot be had is an error here instead of a SIGBUS later.
    if (const int error = allocate(file.fd(), bytes); error != 0) {
        return Error{Errc::OutOfMemory,
                     fmt::format("no memory for shared memory '{}' of {} bytes: {}", name, bytes,
                                 write_error(error))};
    }
    if (::pwrite(file.fd(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) {
        return failed("pwrite", name);
    }
    if (seals_memory_files() && ::fcntl(file.fd(), F_ADD_SEALS, kSeals) != 0) {
        return failed("fcntl(F_ADD_SEALS)", name);
    }
    return file;
}

Result<ShmRegion> ShmRegion::attach(int fd, std::size_t bytes_min) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals_memory_files() && (seals < 0 || (seals & kSeals) != kSeals)) {
        return Error{
            Errc::Protocol,
            fmt::format("shared memory from a peer is not sealed against resizing (descriptor {})",
                        fd)};
    }
    struct stat status {};
    if (::fstat(fd, &status) != 0) return failed("fstat", std::to_string(fd));
    if (status.st_size <= 0 || static_cast<std::size_t>(status.st_size) < bytes_min) {
        return Error{Errc::Protocol,
                     fmt::format("shared memory from a peer has {} bytes, at least {} are needed",
                                 status.st_size, bytes_min)};
    }
    try {
        ShmRegion region;
        // MAP_POPULATE: the first message must not pay for page faults.
        region.region_.reset(new bip::mapped_region(MemfdMapping{fd}, bip::read_write, 0,
                                                    static_cast<std::size_t>(status.st_size),
                                                    nullptr, MAP_POPULATE));
        return region;
    } catch (const bip::interprocess_exception& problem) {
        return Error{Errc::System, fmt::format("cannot map {} bytes of shared memory: {}",
                                               status.st_size, problem.what())};
    }
}

std::span<std::byte> ShmRegion::bytes() const {
    if (region_ == nullptr) return {};
    return {static_cast<std::byte*>(region_->get_address()), region_->get_size()};
}

void ShmRegion::Unmap::operator()(bip::mapped_region* region) const {
    delete region;
}

}  // namespace paceline
