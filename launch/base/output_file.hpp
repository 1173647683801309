// OutputFile: a file that a command writes at its end but opens at its start, so that a path that
// cannot be written is an error before a model is loaded and an answer is computed.
//
// A file that the command made and did not write whole is removed: a failed run leaves none behind.
// One that was there before is empty then. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"

namespace paceline {

class OutputFile {
public:
    /// Errors: BadArgument, naming `option`, path and reason.
    static Result<OutputFile> open(const std::string& path, const char* option);

    OutputFile(OutputFile&& other) noexcept
        : path_{std::move(other.path_)},
          file_{std::move(other.file_)},
          remove_{std::exchange(other.remove_, false)} {}
    OutputFile& operator=(OutputFile&& other) noexcept;
    ~OutputFile();

    /// All of the file. Errors: System (the disk is full), naming the path.
    [[nodiscard]] Status write(const std::string& text);

private:
    OutputFile(std::string path, OwnedFd file, bool made)
        : path_{std::move(path)}, file_{std::move(file)}, remove_{made} {}

    std::string path_;
    OwnedFd file_;
    bool remove_;  // it was made here and has no text yet
};

/// OutputFile::open() into `file`; nothing happens if `path` is empty: the option was not given.
[[nodiscard]] Status open_if_named(const std::string& path,
                                   const char* option,
                                   std::optional<OutputFile>& file);

}  // namespace paceline
