// The bytes of a compiled grammar: a line with the control tokens that it names, then the library's
// own form, compressed (a Zstandard frame with the size of its content and a checksum).
//
//     paceline-grammar 2 5 9\n<frame of {"grammar": ...>
//
// The library writes the token mask of every state as text. Counted repetitions have many states
// with nearly the same masks: 28 MB of `maxLength` 200 beside a list of strings of 100 become 0.6.
//
// read_form() treats its input as untrusted. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

/// The largest form of the library, in bytes. Reading one takes about 20 ns a byte, in the job that
/// draws the first token of an answer.
inline constexpr std::size_t kLibraryFormMax = std::size_t{16} << 20;

struct CompiledForm {
    std::vector<TokenId> named;  // ascending
    std::string library;
};

/// Errors: BadArgument for a form of the library that is too large.
[[nodiscard]] Result<std::string> write_form(const CompiledForm& form);
/// Errors: BadFile for other bytes, or a frame of more than kLibraryFormMax.
[[nodiscard]] Result<CompiledForm> read_form(std::string_view bytes);

}  // namespace paceline
