// Bytes written to a descriptor, all of them, and why they could not be.
//
// Functions without state, for any thread.
#pragma once

#include <string>
#include <string_view>

namespace paceline {

/// Writes all of `bytes`; a signal in between loses nothing. 0, or the errno of the write that
/// failed.
[[nodiscard]] int write_all(int descriptor, std::string_view bytes);

/// The system's sentence for `error`, an errno; with the limit behind it where there is one (ulimit
/// -f).
[[nodiscard]] std::string write_error(int error);

}  // namespace paceline
