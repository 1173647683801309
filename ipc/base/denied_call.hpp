// is_denied: whether a system call failed because it cannot be had here at all.
//
// An old kernel answers ENOSYS for a call that it does not know; a container's profile answers
// EPERM or EACCES for one that it forbids. A caller that can do without the call, or knows an older
// one, goes on then. Every other error (no memory, no descriptors) stays an error.
#pragma once

#include <cerrno>

namespace paceline {

[[nodiscard]] inline bool is_denied(int error) {
    return error == ENOSYS || error == EPERM || error == EACCES;
}

}  // namespace paceline
