#include "ipc/base/write_all.hpp"

#include <cerrno>
#include <system_error>
#include <unistd.h>

namespace paceline {

int write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : EIO;
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

std::string write_error(int error) {
    std::string text = std::error_code(error, std::generic_category()).message();
    if (error == EFBIG) {
        text +=
            "; a limit of this process (ulimit -f) or of the file system ends files there, shared "
            "memory too";
    }
    return text;
}

}  // namespace paceline
