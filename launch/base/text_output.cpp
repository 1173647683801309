#include "launch/base/text_output.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "ipc/base/write_all.hpp"

namespace paceline {
namespace {

/// Or taken by prepare_process(), since it was closed.
bool is_closed() {
    const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
    return flags < 0 || (flags & O_PATH) != 0;
}

/// `reason`: an errno, 0 if it is not known any more.
Error cannot_write(int reason) {
    if (is_closed()) return Error{Errc::System, "standard output is closed"};
    std::string what = "standard output cannot be written";
    if (reason != 0) what.append(": ").append(write_error(reason));
    return Error{Errc::System, what};
}

}  // namespace

Status write_stdout(std::string_view text) {
    const int error = write_all(STDOUT_FILENO, text);
    return error == 0 ? Status{} : cannot_write(error);
}

Status flush_stdout() {
    errno = 0;
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return cannot_write(errno);
    return {};
}

}  // namespace paceline
