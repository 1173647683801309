#include "launch/base/text_output.hpp"

#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace paceline {

Status write_stdout(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            return Error{Errc::System,
                         std::string{"standard output cannot be written: "} + std::strerror(errno)};
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

}  // namespace paceline
