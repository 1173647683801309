// open_memory_file: a file without a name, in memory; the kernel frees it with its last descriptor.
//
// A memfd, which can be sealed against resizing. Where memfd_create is missing (before Linux 3.17)
// or forbidden: a file of /dev/shm without a name, or one that is unlinked at once; these cannot be
// sealed.
// Threads: any.
#pragma once

#include <string>

namespace paceline {

/// A descriptor that exec closes, or -1 with errno. `name` appears in /proc alone.
[[nodiscard]] int open_memory_file(const std::string& name);

/// Whether the files of open_memory_file() can be sealed in this process, and in those that it
/// starts.
[[nodiscard]] bool seals_memory_files();

}  // namespace paceline
