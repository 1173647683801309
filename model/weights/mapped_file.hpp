// MappedFile: the bytes of a regular file, mapped read-only.
//
// Owns the mapping and the descriptor; moving it leaves the bytes where they are. Immutable:
// may be read from several threads. If the file is truncated while it is mapped, reads
// of its tail raise SIGBUS, as with any mapped file; check_unchanged() detects changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline {

/// The state of a file in its file system: equal texts of one path mean the same bytes, unless a
/// clock was set back.
struct FileIdentity {
    std::string text;  // device, inode, size, times of modification and of change
    std::int64_t changed_ns =
        0;  // st_ctime, which no program can set: every write and rename moves it on
};

class MappedFile {
public:
    /// Errors: BadFile, naming the path: missing, unreadable, a directory, not a regular file,
    /// empty, a pointer of Git LFS. System: the kernel refuses the mapping.
    static Result<MappedFile> open(const std::string& path);
    /// The same for bytes of the program's own, which go by the name `name`. Errors: System.
    static Result<MappedFile> of_text(const std::string& name, std::string_view text);

    /// Whether something of that name is there, whatever it is.
    [[nodiscard]] static bool exists(const std::string& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

    /// Drops the whole pages inside `part`, which lies inside bytes(), from the process's
    /// memory. Reading them again is allowed and fetches them from the file anew.
    void release(std::span<const std::byte> part) const;

    /// As it is now. Errors: System.
    [[nodiscard]] Result<FileIdentity> identity() const;

    /// Errors: BadFile if size or modification time are no longer what they were at open().
    [[nodiscard]] Status check_unchanged() const;

private:
    MappedFile() = default;
    /// Takes the descriptor over.
    static Result<MappedFile> map(const std::string& path, int descriptor);

    std::string path_;
    int descriptor_ = -1;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::int64_t modified_ns_ = 0;  // st_mtim at open()
};

}  // namespace paceline
