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

}  // namespace paceline
