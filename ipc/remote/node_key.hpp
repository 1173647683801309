// NodeKey: the secret that the machines of one cluster share: 32 random bytes.
//
// Whoever has it may start stages on every agent, so it is never an argument of a command. It comes
// from a file that its owner alone may read, or from the text of PACELINE_KEY, which
// launch/cli/main.cpp passes in. Both hold 64 hexadecimal digits; a file may end with a newline.
// Errors never repeat a part of the key. A value; any thread. Its bytes are wiped at its end.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline::remote {

inline constexpr std::size_t kNodeKeyBytes = 32;

class NodeKey {
public:
    /// Errc::BadFile with the file, and its mode if others than its owner may do anything with it:
    /// it must be a regular file of mode 0600 (or 0400).
    [[nodiscard]] static Result<NodeKey> from_file(const std::string& path);
    /// Errc::BadArgument with `source` ("PACELINE_KEY") if it is not 64 hexadecimal digits.
    [[nodiscard]] static Result<NodeKey> from_text(std::string_view text, std::string_view source);
    /// Of the kernel's random bytes. Errc::System if there are none.
    [[nodiscard]] static Result<NodeKey> random();

    NodeKey(const NodeKey&) = default;
    NodeKey& operator=(const NodeKey&) = default;
    ~NodeKey();

    [[nodiscard]] std::span<const std::byte, kNodeKeyBytes> bytes() const { return bytes_; }
    [[nodiscard]] std::string text() const;

private:
    NodeKey() = default;
    std::array<std::byte, kNodeKeyBytes> bytes_{};
};

/// Makes a key and a new file of mode 0600 with it. Errc::BadFile if the file exists (it is not
/// touched) or cannot be written; a file that could not be completed is removed.
[[nodiscard]] Status write_new_key(const std::string& path);

}  // namespace paceline::remote
