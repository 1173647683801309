#include "launch/base/output_file.hpp"

#include <cerrno>
#include <cstring>

namespace paceline {

Result<OutputFile> OutputFile::open(const std::string& path, const char* option) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) {
        return Error{Errc::BadArgument, std::string{option} + ": " + path +
                                            " cannot be written: " + std::strerror(errno)};
    }
    return OutputFile{file, path};
}

Status OutputFile::write(const std::string& text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                         std::fflush(file_.get()) == 0;
    if (written) return {};
    return Error{Errc::System, path_ + " cannot be written: " + std::strerror(errno)};
}

Status replace_file(const std::string& path, const std::string& text) {
    const std::string written = path + ".new";
    Result<OutputFile> file = OutputFile::open(written, "state");
    if (!file) return file.error();
    if (Status done = file.value().write(text); !done) return done;
    if (std::rename(written.c_str(), path.c_str()) == 0) return {};
    return Error{Errc::System, path + " cannot be written: " + std::strerror(errno)};
}

}  // namespace paceline
