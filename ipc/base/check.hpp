// PACE_CHECK: aborts the process on a bug in Paceline, in release builds too.
//
// A wrong token is worse than a restart, and the supervisor replaces a stage that aborts. Errors of
// files, peers and users are never checked with this; they are Results (result.hpp).
#pragma once

namespace paceline {

/// Prints "file:line: message (condition)" to stderr and aborts.
[[noreturn]] void check_failed(const char* file,
                               int line,
                               const char* condition,
                               const char* message);

}  // namespace paceline

#define PACE_CHECK(condition, message)                                           \
    do {                                                                         \
        if (!(condition)) [[unlikely]] {                                         \
            ::paceline::check_failed(__FILE__, __LINE__, #condition, (message)); \
        }                                                                        \
    } while (false)
