// UnfinishedFile: a file that gets its name only when it is completely written.
//
// It is called PATH.paceline-part until keep(). No other program uses such names, so an existing
// file of that name is overwritten. A reader of PATH finds the old file or the complete new one.
// One writer at a time: the part is locked (flock) while it is written, so that two processes with
// one PATH never write into the same bytes; the part of a process that was killed is overwritten by
// the next writer. Owns the descriptor; the destructor removes the part unless keep() was called.
// One thread.
// Errors: System, naming the path, what is missing and why (no space left on device); Cancelled:
// Beside::Refuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ipc/base/result.hpp"

namespace paceline {

class UnfinishedFile {
public:
    /// Where another process writes the same file: wait until it is done, or give up.
    enum class Beside : std::uint8_t { Wait, Refuse };

    /// The name of the file at `path` until keep().
    [[nodiscard]] static std::string part_of(const std::string& path);
    static Result<UnfinishedFile> begin(const std::string& path, Beside beside);
    /// Removes the parts in `folder` whose writers are gone (killed, Ctrl-C). Where a file system
    /// has no locks, none.
    static void remove_abandoned(const std::string& folder);

    UnfinishedFile(UnfinishedFile&& other) noexcept;
    UnfinishedFile& operator=(UnfinishedFile&&) noexcept = delete;
    UnfinishedFile(const UnfinishedFile&) = delete;
    UnfinishedFile& operator=(const UnfinishedFile&) = delete;
    ~UnfinishedFile();

    [[nodiscard]] const std::string& part() const { return part_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    /// Takes `bytes` on the disk before they are written, so that a full disk is known at once.
    /// Where the file system cannot, nothing happens.
    [[nodiscard]] Status reserve(std::uint64_t bytes);
    [[nodiscard]] Status append(std::span<const std::byte> bytes);
    /// Waits until the disk has all of it.
    [[nodiscard]] Status sync();
    /// Gives the file its name, replacing one that has it.
    [[nodiscard]] Status keep();

private:
    UnfinishedFile(std::string path, int descriptor);
    [[nodiscard]] Error failed(int error) const;

    std::string path_;
    std::string part_;
    int descriptor_ = -1;  // -1: kept, or moved from
    std::uint64_t bytes_ = 0;
    std::uint64_t reserved_ = 0;
};

}  // namespace paceline
