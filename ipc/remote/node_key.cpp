#include "ipc/remote/node_key.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/write_all.hpp"
#include "ipc/transport/owned_fd.hpp"

namespace paceline::remote {
namespace {

constexpr std::size_t kDigits = 2 * kNodeKeyBytes;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

Error cannot(const char* verb, const std::string& path) {
    return {Errc::BadFile,
            fmt::format("cannot {} the key file {}: {}", verb, path, std::strerror(errno))};
}

/// -1 if it is no hexadecimal digit.
int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

NodeKey::~NodeKey() {
    OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

Result<NodeKey> NodeKey::from_text(std::string_view text, std::string_view source) {
    if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    NodeKey key;
    bool fits = text.size() == kDigits;
    for (std::size_t i = 0; fits && i < kNodeKeyBytes; ++i) {
        const int high = digit_of(text[2 * i]);
        const int low = digit_of(text[2 * i + 1]);
        fits = high >= 0 && low >= 0;
        key.bytes_[i] = static_cast<std::byte>(high * 16 + low);
    }
    if (fits) return key;
    return Error{Errc::BadArgument,
                 fmt::format("{} holds no key: it must be {} hexadecimal digits and has {} "
                             "characters; make one with: paceline agent --new-key FILE",
                             source, kDigits, text.size())};
}

Result<NodeKey> NodeKey::from_file(const std::string& path) {
    // Without waiting: the path may be a pipe.
    const OwnedFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    if (!file) return cannot("open", path);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) return cannot("look at", path);
    if (!S_ISREG(status.st_mode)) {
        return Error{Errc::BadFile, fmt::format("the key file {} is not a regular file", path)};
    }
    if ((status.st_mode & (kOthers | S_IXUSR)) != 0) {
        return Error{Errc::BadFile,
                     fmt::format("the key file {} has mode {:04o}; its owner alone may read it: "
                                 "chmod 0600 {}",
                                 path, status.st_mode & 07777, path)};
    }
    std::array<char, kDigits + 2> text{};
    std::size_t count = 0;
    while (count < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + count, text.size() - count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot("read", path);
        if (got == 0) break;
        count += static_cast<std::size_t>(got);
    }
    Result<NodeKey> key = from_text(std::string_view{text.data(), count}, "the key file " + path);
    OPENSSL_cleanse(text.data(), text.size());
    if (!key.ok()) return Error{Errc::BadFile, key.error().what};
    return key;
}

Result<NodeKey> NodeKey::random() {
    NodeKey key;
    std::size_t count = 0;
    while (count < key.bytes_.size()) {
        const ssize_t got = ::getrandom(key.bytes_.data() + count, key.bytes_.size() - count, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return Error{Errc::System,
                         std::string{"getrandom for a new key failed: "} + std::strerror(errno)};
        }
        count += static_cast<std::size_t>(got);
    }
    return key;
}

std::string NodeKey::text() const {
    constexpr std::string_view kHexadecimal = "0123456789abcdef";
    std::string text;
    for (const std::byte byte : bytes_) {
        text += kHexadecimal[std::to_integer<std::size_t>(byte >> 4)];
        text += kHexadecimal[std::to_integer<std::size_t>(byte & std::byte{15})];
    }
    return text;
}

Status write_new_key(const std::string& path) {
    Result<NodeKey> key = NodeKey::random();
    if (!key.ok()) return key.error();
    const OwnedFd file{
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!file && errno == EEXIST) {
        return Error{Errc::BadFile,
                     fmt::format("the key file {} exists already and is left as it is", path)};
    }
    if (!file) return cannot("make", path);
    std::string text = key.value().text() + "\n";
    // The umask may have taken bits of the mode.
    int problem = ::fchmod(file.get(), 0600) == 0 ? 0 : errno;
    if (problem == 0) problem = write_all(file.get(), text);
    if (problem == 0 && ::fsync(file.get()) != 0) problem = errno;
    OPENSSL_cleanse(text.data(), text.size());
    if (problem == 0) return {};
    ::unlink(path.c_str());
    return Error{Errc::BadFile,
                 fmt::format("cannot write the key file {}: {}", path, write_error(problem))};
}

}  // namespace paceline::remote
