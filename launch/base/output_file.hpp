// OutputFile: a file that a command writes at its end but opens at its start, so that a path that cannot be
// written is an error before a model is loaded and an answer is computed.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "ipc/base/result.hpp"

namespace paceline {

class OutputFile {
public:
    /// Errors: BadArgument, naming `option`, path and reason.
    static Result<OutputFile> open(const std::string& path, const char* option);

    /// Errors: System (the disk is full), naming the path.
    [[nodiscard]] Status write(const std::string& text);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    OutputFile(std::FILE* file, std::string path) : file_{file}, path_{std::move(path)} {}

    std::unique_ptr<std::FILE, Close> file_;
    std::string path_;
};

}  // namespace paceline
