// Standard output: writes an answer as it is decoded, and checks that all output was written.
#pragma once

#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline {

/// Writes all of `text` to standard output, unbuffered; a signal in between loses nothing.
/// Errors: System with the reason (a full disk; it is closed). A reader that left ends the process
/// by SIGPIPE.
[[nodiscard]] Status write_stdout(std::string_view text);

/// Sends on what printf and its like have buffered. Errors: System with the reason, if that or
/// anything printed before could not be written.
[[nodiscard]] Status flush_stdout();

}  // namespace paceline
