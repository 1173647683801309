#include "launch/base/standard_streams.hpp"

#include <csignal>
#include <fcntl.h>
#include <unistd.h>

namespace paceline {

void prepare_process() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        // The lowest free number. A descriptor of O_PATH can neither be read nor written (EBADF, as
        // of a closed one), and needs no /dev.
        if (::fcntl(fd, F_GETFD) < 0 && ::open("/", O_PATH) < 0) return;
    }
    std::signal(SIGCHLD, SIG_DFL);
    std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace paceline
