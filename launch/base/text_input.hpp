// Where a command's text comes from: an argument, a file, or standard input.
#pragma once

#include <optional>
#include <string>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"

namespace paceline {

struct TextSource {
    std::optional<std::string> text;  // given on the command line
    std::string file;                 // -f FILE, "-" is standard input; empty: not given
};

/// The text. Standard input is read when neither text nor file is given and it is no terminal.
/// Errors: BadArgument (both given, or none and standard input is a terminal), BadFile.
[[nodiscard]] Result<std::string> read_text(const TextSource& source,
                                            const Environment& environment);

/// All bytes of `path`. Errors: BadFile with the reason.
[[nodiscard]] Result<std::string> read_file(const std::string& path);

}  // namespace paceline
