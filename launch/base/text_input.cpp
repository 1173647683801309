#include "launch/base/text_input.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/core.h>
#include <memory>

#include "ipc/base/utf8.hpp"

namespace paceline {

namespace {

Result<std::string> read_all(std::FILE* stream, const std::string& name, std::size_t bytes_max) {
    std::string text;
    std::array<char, 65536> block{};
    errno = 0;
    while (const std::size_t got = std::fread(block.data(), 1, block.size(), stream)) {
        if (got > bytes_max - text.size()) {
            return Error{Errc::BadFile,
                         fmt::format("{}: is longer than {} KiB, the most that is read of it", name,
                                     bytes_max >> 10U)};
        }
        text.append(block.data(), got);
    }
    if (std::ferror(stream) != 0) {
        return Error{Errc::BadFile, name + ": cannot be read: " + std::strerror(errno)};
    }
    return std::string{utf8::without_mark(text)};
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
    struct Close {
        void operator()(std::FILE* f) const { std::fclose(f); }
    };
    const std::unique_ptr<std::FILE, Close> file{std::fopen(path.c_str(), "rb")};
    if (!file) return Error{Errc::BadFile, path + ": cannot be opened: " + std::strerror(errno)};
    Result<std::string> text = read_all(file.get(), path, bytes_max);
    const bool utf16 =
        text && (text.value().starts_with("\xFF\xFE") || text.value().starts_with("\xFE\xFF"));
    if (utf16) return Error{Errc::BadFile, path + ": is UTF-16 text; save it as UTF-8"};
    return text;
}

Result<std::string> read_file_or_stdin(const std::string& path, std::size_t bytes_max) {
    return path == "-" ? read_all(stdin, "standard input", bytes_max) : read_file(path, bytes_max);
}

Result<std::string> read_text(const TextSource& source, const Environment& environment) {
    if (source.text && !source.file.empty()) {
        return Error{Errc::BadArgument,
                     "the text is given twice, on the command line and with -f " + source.file};
    }
    if (source.text) return *source.text;
    if (!source.file.empty()) return read_file_or_stdin(source.file, kTextBytesMax);
    if (environment.stdin_is_terminal) {
        return Error{Errc::BadArgument,
                     "no text: give it on the command line, with -f FILE or on standard input"};
    }
    return read_file_or_stdin("-", kTextBytesMax);
}

}  // namespace paceline
