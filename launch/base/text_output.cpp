#include "launch/base/text_output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <unistd.h>

namespace paceline {
namespace {

/// `reason`: an errno, 0 if it is not known any more.
Error cannot_write(int reason) {
    std::string what = "standard output cannot be written";
    if (reason != 0) what.append(": ").append(std::strerror(reason));
    return Error{Errc::System, what};
}

}  // namespace

Status write_stdout(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return cannot_write(errno);
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

Status flush_stdout() {
    errno = 0;
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return cannot_write(errno);
    return {};
}

}  // namespace paceline
