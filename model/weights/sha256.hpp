// SHA-256 of some bytes (FIPS 180-4), for naming a file by its content as other tools do.
//
// A value; one thread. With the SHA instructions of x86 some 1.5 GB/s, else some 200 MB/s: both
// ways give the same digest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace paceline {

class Sha256 {
public:
    enum class Way : std::uint8_t { Best, Portable };

    explicit Sha256(Way way = Way::Best) : way_{way} {}
    void add(std::span<const std::byte> bytes);
    /// 64 lower-case hexadecimal digits of all that was added; nothing can be added afterwards.
    [[nodiscard]] std::string text();

    using State = std::array<std::uint32_t, 8>;

private:
    State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t bytes_ = 0;
    Way way_;
};

/// The digest of `bytes` alone.
[[nodiscard]] std::string sha256_text(std::span<const std::byte> bytes);

}  // namespace paceline
