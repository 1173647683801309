// PACE_CHECK: a bug in Paceline ends the process, in release builds too.
//
// A wrong token is worse than a restart: the supervisor replaces a stage that aborts. What the
// world does wrong (files, peers, users) is never checked with this; it is a Result (result.hpp).
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
