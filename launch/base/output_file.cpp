#include "launch/base/output_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/write_all.hpp"

namespace paceline {
namespace {

constexpr mode_t kMode = 0666;  // less the user's umask

/// Whether `path` itself, not what a link of that name leads to, is the file `descriptor`, and is
/// still empty: another process may have written to it.
bool is_left_empty(int descriptor, const std::string& path) {
    struct stat own {};
    struct stat named {};
    return ::fstat(descriptor, &own) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           S_ISREG(named.st_mode) && named.st_size == 0 && own.st_ino == named.st_ino &&
           own.st_dev == named.st_dev;
}

}  // namespace

Result<OutputFile> OutputFile::open(const std::string& path, const char* option) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC;
    OwnedFd file{::open(path.c_str(), kFlags | O_EXCL, kMode)};
    const bool made = static_cast<bool>(file);
    if (!made) file = OwnedFd{::open(path.c_str(), kFlags | O_TRUNC, kMode)};
    if (!file) {
        return Error{Errc::BadArgument, std::string{option} + ": " + path +
                                            " cannot be written: " + write_error(errno)};
    }
    return OutputFile{path, std::move(file), made};
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    std::swap(remove_, other.remove_);
    return *this;
}

OutputFile::~OutputFile() {
    if (file_ && remove_ && is_left_empty(file_.get(), path_)) (void)::unlink(path_.c_str());
}

Status OutputFile::write(const std::string& text) {
    if (const int error = write_all(file_.get(), text); error != 0) {
        // Half of a JSON file is worth nothing; a pipe has no length.
        (void)!::ftruncate(file_.get(), 0);
        return Error{Errc::System, path_ + " cannot be written: " + write_error(error)};
    }
    remove_ = false;
    return {};
}

Status open_if_named(const std::string& path, const char* option, std::optional<OutputFile>& file) {
    if (path.empty()) return {};
    Result<OutputFile> opened = OutputFile::open(path, option);
    if (!opened) return opened.error();
    file = std::move(opened).value();
    return {};
}

}  // namespace paceline
