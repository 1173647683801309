// What the loader's tests expect of bytes: that they are read, or how they are refused.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "model/weights/gguf/gguf_shards.hpp"
#include "tests/unit/weights/gguf_builder.hpp"

namespace paceline::test {

/// Bytes on the heap with nothing after them, so that AddressSanitizer sees one byte too far.
class ExactBytes {
public:
    explicit ExactBytes(std::span<const std::byte> bytes)
        : data_{new std::byte[bytes.size()]}, size_{bytes.size()} {
        std::copy(bytes.begin(), bytes.end(), data_.get());
    }
    [[nodiscard]] std::span<std::byte> span() const { return {data_.get(), size_}; }

private:
    std::unique_ptr<std::byte[]> data_;
    std::size_t size_;
};

/// `bytes` as the only file of a model; the views in the parts point into them.
inline Result<ModelParts> read_gguf(std::span<const std::byte> bytes) {
    const GgufBytes whole{bytes, "model.gguf"};
    return read_gguf_shards({&whole, 1});
}

inline Result<ModelParts> read_bytes(const Bytes& bytes) {
    const ExactBytes exact(bytes);
    Result<ModelParts> parts = read_gguf(exact.span());
    return parts;  // its views dangle: only configuration, names and shapes may be looked at
}

/// The file is refused with this code, in a message that names the file and all of `words`.
inline void expect_refused(const Bytes& bytes,
                           Errc code,
                           std::initializer_list<std::string_view> words) {
    const Result<ModelParts> parts = read_bytes(bytes);
    REQUIRE_FALSE(parts.ok());
    CAPTURE(parts.error().what);
    CHECK(parts.error().code == code);
    CHECK(parts.error().what.find("model.gguf") != std::string::npos);
    for (const std::string_view word : words) {
        CAPTURE(word);
        CHECK(parts.error().what.find(word) != std::string::npos);
    }
}

inline ModelConfig expect_config(const GgufBuilder& builder) {
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    if (!parts) FAIL(parts.error().what);
    return parts.value().config;
}

}  // namespace paceline::test
