#include "model/weights/mapped_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/memory_file.hpp"
#include "ipc/base/write_all.hpp"

namespace paceline {
namespace {

std::string reason(int error) {
    return std::error_code(error, std::generic_category()).message();
}

std::int64_t nanoseconds(const timespec& time) {
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::int64_t modified_ns(const struct stat& info) {
    return nanoseconds(info.st_mtim);
}

Status check_regular(const std::string& path, const struct stat& info) {
    if (S_ISDIR(info.st_mode)) {
        return Error{Errc::BadFile, path + " is a directory, not a file"};
    }
    if (!S_ISREG(info.st_mode)) {
        return Error{Errc::BadFile, path + " is not a regular file, so it cannot be mapped"};
    }
    if (info.st_size == 0) return Error{Errc::BadFile, path + " is empty (0 bytes)"};
    return {};
}

/// A file of a repository that was cloned without Git LFS begins so: its content is still on the
/// server.
Status check_fetched(const MappedFile& file) {
    constexpr std::string_view kPointer = "version https://git-lfs";
    const std::span<const std::byte> bytes = file.bytes();
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (!text.starts_with(kPointer)) return {};
    return Error{Errc::BadFile, file.path() +
                                    " is a pointer of Git LFS, not the file itself, as a clone "
                                    "without Git LFS leaves it; git lfs pull in the folder of the "
                                    "clone fetches it"};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
    // O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return Error{Errc::BadFile, "cannot open " + path + ": " + reason(errno)};
    }
    Result<MappedFile> file = map(path, descriptor);
    if (!file) return file;
    if (Status fetched = check_fetched(file.value()); !fetched) return fetched.error();
    return file;
}

Result<MappedFile> MappedFile::of_text(const std::string& name, std::string_view text) {
    const int descriptor = open_memory_file("paceline");
    const int error = descriptor < 0 ? errno : write_all(descriptor, text);
    if (error != 0) {
        Error failed{Errc::System, "no memory file for " + name + ": " + write_error(error)};
        if (descriptor >= 0) ::close(descriptor);
        return failed;
    }
    return map(name, descriptor);
}

bool MappedFile::exists(const std::string& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0;
}

Result<MappedFile> MappedFile::map(const std::string& path, int descriptor) {
    MappedFile file;
    file.path_ = path;
    file.descriptor_ = descriptor;
    struct stat info {};
    if (::fstat(file.descriptor_, &info) != 0) {
        return Error{Errc::System, "cannot examine " + path + ": " + reason(errno)};
    }
    if (Status regular = check_regular(path, info); !regular) return regular.error();

    const auto size = static_cast<std::size_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
    if (address == MAP_FAILED) {
        return Error{Errc::System,
                     fmt::format("cannot map the {} bytes of {}: {}", size, path, reason(errno))};
    }
    file.data_ = static_cast<const std::byte*>(address);
    file.size_ = size;
    file.modified_ns_ = modified_ns(info);
    return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_{std::move(other.path_)},
      descriptor_{std::exchange(other.descriptor_, -1)},
      data_{std::exchange(other.data_, nullptr)},
      size_{std::exchange(other.size_, 0)},
      modified_ns_{other.modified_ns_} {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(modified_ns_, other.modified_ns_);
    return *this;
}

MappedFile::~MappedFile() {
    // munmap takes a non-const pointer although it writes nothing.
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    if (descriptor_ >= 0) ::close(descriptor_);
}

void MappedFile::release(std::span<const std::byte> part) const {
    const auto offset = static_cast<std::size_t>(part.data() - data_);
    PACE_CHECK(part.data() >= data_ && offset <= size_ && part.size() <= size_ - offset,
               "the released part lies inside the mapping");
    // The mapping begins on a page border, so page borders are multiples within it.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = (offset + page - 1) / page * page;
    const std::size_t last = (offset + part.size()) / page * page;
    if (first >= last) return;
    // Only advice: where the kernel refuses it, the pages stay and nothing else changes.
    (void)::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

Result<FileIdentity> MappedFile::identity() const {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0)
        return Error{Errc::System, "cannot examine " + path_ + ": " + reason(errno)};
    const std::int64_t changed = nanoseconds(info.st_ctim);
    return FileIdentity{fmt::format("{} {} {} {} {}", info.st_dev, info.st_ino, info.st_size,
                                    modified_ns(info), changed),
                        changed};
}

Status MappedFile::check_unchanged() const {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) {
        return Error{Errc::System, "cannot examine " + path_ + ": " + reason(errno)};
    }
    if (static_cast<std::size_t>(info.st_size) != size_ || modified_ns(info) != modified_ns_) {
        return Error{
            Errc::BadFile,
            fmt::format("{} changed while it was in use ({} bytes at first, {} now); start again",
                        path_, size_, info.st_size)};
    }
    return {};
}

}  // namespace paceline
