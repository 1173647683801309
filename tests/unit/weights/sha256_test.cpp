// SHA-256 beside the digests of FIPS 180-4, and its two ways beside each other.
#include "model/weights/sha256.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace paceline {
namespace {

std::string digest_of(std::span<const std::byte> bytes, Sha256::Way way, std::size_t step) {
    Sha256 digest{way};
    while (!bytes.empty()) {
        const std::size_t count = std::min(step, bytes.size());
        digest.add(bytes.first(count));
        bytes = bytes.subspan(count);
    }
    return digest.text();
}

}  // namespace

TEST_CASE(
    "a million letters a have the digest of FIPS 180-4, in pieces of any size, on both ways") {
    const std::string letters(1'000'000, 'a');
    const auto bytes = std::as_bytes(std::span{letters});
    for (const Sha256::Way way : {Sha256::Way::Best, Sha256::Way::Portable}) {
        for (const std::size_t step : {1'000'000U, 64U, 63U, 1000U}) {
            CAPTURE(step);
            CHECK(digest_of(bytes, way, step) ==
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
        }
    }
}

TEST_CASE(
    "the instructions of x86 give what the plain loops give, for every length around a block") {
    std::vector<std::byte> bytes(300);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(i * 37 + i / 7);
    for (std::size_t size = 0; size <= bytes.size(); ++size) {
        CAPTURE(size);
        const auto part = std::span{bytes}.first(size);
        CHECK(digest_of(part, Sha256::Way::Best, 300) == digest_of(part, Sha256::Way::Portable, 7));
    }
}

}  // namespace paceline
