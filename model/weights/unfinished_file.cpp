#include "model/weights/unfinished_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/denied_call.hpp"
#include "ipc/base/write_all.hpp"

namespace paceline {
namespace {

constexpr const char* kPartSuffix = ".paceline-part";

/// Whether `descriptor` is still what `path` names: the writer before may have given it another
/// name.
bool is_named(int descriptor, const std::string& path) {
    struct stat own {};
    struct stat named {};
    return ::fstat(descriptor, &own) == 0 && ::stat(path.c_str(), &named) == 0 &&
           own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

/// 0, or what flock() failed with. A file system without locks counts as locked.
int lock(int descriptor, UnfinishedFile::Beside beside) {
    const int how = LOCK_EX | (beside == UnfinishedFile::Beside::Refuse ? LOCK_NB : 0);
    while (::flock(descriptor, how) != 0) {
        if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return 0;
        if (errno != EINTR) return errno;
    }
    return 0;
}

}  // namespace

std::string UnfinishedFile::part_of(const std::string& path) {
    return path + kPartSuffix;
}

void UnfinishedFile::remove_abandoned(const std::string& folder) {
    std::error_code failed;
    for (std::filesystem::directory_iterator at{folder, failed}, end; !failed && at != end;
         at.increment(failed)) {
        const std::string part = at->path().string();
        if (!part.ends_with(kPartSuffix)) continue;
        const int descriptor = ::open(part.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (descriptor < 0) continue;
        if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_named(descriptor, part))
            (void)::unlink(part.c_str());
        (void)::close(descriptor);
    }
}

UnfinishedFile::UnfinishedFile(std::string path, int descriptor)
    : path_{std::move(path)}, part_{part_of(path_)}, descriptor_{descriptor} {}

UnfinishedFile::UnfinishedFile(UnfinishedFile&& other) noexcept
    : path_{std::move(other.path_)},
      part_{std::move(other.part_)},
      descriptor_{std::exchange(other.descriptor_, -1)},
      bytes_{other.bytes_},
      reserved_{other.reserved_} {}

UnfinishedFile::~UnfinishedFile() {
    if (descriptor_ < 0) return;
    (void)::unlink(part_.c_str());  // before the lock goes with the descriptor
    (void)::close(descriptor_);
}

Result<UnfinishedFile> UnfinishedFile::begin(const std::string& path, Beside beside) {
    const std::string part = part_of(path);
    for (;;) {
        constexpr mode_t kMode = 0666;  // less the user's umask
        const int descriptor =
            ::open(part.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kMode);
        if (descriptor < 0)
            return Error{Errc::System, part + " cannot be written: " + write_error(errno)};
        if (const int error = lock(descriptor, beside); error != 0) {
            (void)::close(descriptor);
            if (error == EWOULDBLOCK)
                return Error{Errc::Cancelled, path + " is being written by another process (" +
                                                  part + " is locked)"};
            return Error{Errc::System, part + " cannot be locked: " + write_error(error)};
        }
        if (!is_named(descriptor, part)) {
            (void)::close(descriptor);
            continue;
        }
        UnfinishedFile file{path, descriptor};
        if (::ftruncate(descriptor, 0) != 0) return file.failed(errno);
        return file;
    }
}

Error UnfinishedFile::failed(int error) const {
    const std::uint64_t all = std::max(bytes_, reserved_);
    return {Errc::System, fmt::format("{} cannot be written: {} ({} of {} bytes were)", part_,
                                      write_error(error), bytes_, all)};
}

Status UnfinishedFile::reserve(std::uint64_t bytes) {
    reserved_ = bytes;
    if (::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
    const bool cannot = errno == EOPNOTSUPP || errno == EINTR || is_denied(errno);
    if (cannot) return {};
    return failed(errno);
}

Status UnfinishedFile::append(std::span<const std::byte> bytes) {
    PACE_CHECK(descriptor_ >= 0, "bytes for a file that is not kept yet");
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return failed(written < 0 ? errno : EIO);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
        bytes_ += static_cast<std::uint64_t>(written);
    }
    return {};
}

Status UnfinishedFile::sync() {
    if (::fsync(descriptor_) == 0 || errno == EINVAL) return {};
    return failed(errno);
}

Status UnfinishedFile::keep() {
    PACE_CHECK(descriptor_ >= 0, "a file is kept once");
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) return failed(errno);
    if (std::rename(part_.c_str(), path_.c_str()) != 0) return failed(errno);
    // The lock goes with the descriptor: who waits for it finds that the part has another name now.
    (void)::close(std::exchange(descriptor_, -1));
    return {};
}

}  // namespace paceline
