// Where a command's text comes from: an argument, a file, or standard input.
//
// Input is bounded: /dev/zero, or a pipe that never ends, is refused with an error that names it. A
// byte order mark (U+FEFF) at the beginning of a file or of standard input is no part of the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"

namespace paceline {

struct TextSource {
    std::optional<std::string> text;  // given on the command line
    std::string file;                 // -f FILE, "-" is standard input; empty: not given
};

/// Of a prompt or of a message of a chat: four bytes for each token of the longest context (-c).
inline constexpr std::size_t kTextBytesMax = 64U << 20U;
/// Of a file of prompts, of a cost table or of a datastore's texts.
inline constexpr std::size_t kRecordBytesMax = 256U << 20U;

/// The text. Standard input is read when neither text nor file is given and it is no terminal.
/// Errors: BadArgument (both given, or none and standard input is a terminal), BadFile (also of
/// more than kTextBytesMax).
[[nodiscard]] Result<std::string> read_text(const TextSource& source,
                                            const Environment& environment);

/// The text of `path`. Errors: BadFile with the reason: it is longer than `bytes_max`, or UTF-16.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max);
/// The same; "-" is standard input.
[[nodiscard]] Result<std::string> read_file_or_stdin(const std::string& path,
                                                     std::size_t bytes_max);

}  // namespace paceline
