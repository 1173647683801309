// Writes an answer to standard output as it appears.
#pragma once

#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline {

/// Writes all of `text` to standard output, unbuffered; a signal in between loses nothing.
/// Errors: System with the reason (a full disk). A reader that left ends the process by SIGPIPE.
[[nodiscard]] Status write_stdout(std::string_view text);

}  // namespace paceline
