// TensorView: one named weight tensor as it is stored in a file, and how to read it as floats.
//
// Owns nothing: `data` points into the file's mapping and lives as long as the ModelFile.
// Invariant, established by the loader: `bytes` equals what type, rows and cols demand and lies
// wholly inside the file; cols is a multiple of the type's block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace paceline {

struct LowRank;  // low_rank.hpp

/// How a tensor's numbers are stored. Block formats: gguf/gguf_blocks.hpp, docs/file-formats.md.
enum class StoredType : std::uint8_t {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4
};

struct TypeTraits {
    const char* name;              // "Q4_1"
    std::uint32_t block_elements;  // 1 for plain types, 32 or 256 for blocks
    std::uint32_t block_bytes;
};
[[nodiscard]] TypeTraits traits(StoredType type);

struct TensorView {
    std::string name;
    StoredType type = StoredType::F32;
    std::int64_t rows = 0;  // outputs (1 for a vector)
    std::int64_t cols = 0;  // inputs, contiguous
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    const LowRank* added = nullptr;  // merged into what is read; of a ModelFile (lora.hpp)
    /// 0: rows lie in the file in their order. Else the rows of a head of q or k: the file has them
    /// as halves, i and i + head_rows/2, and they are read as neighbours, 2i and 2i + 1.
    std::int64_t head_rows = 0;

    [[nodiscard]] std::size_t row_bytes() const { return bytes / static_cast<std::size_t>(rows); }
    /// Where row `r` lies in the file.
    [[nodiscard]] std::int64_t stored_row(std::int64_t r) const {
        if (head_rows == 0) return r;
        const std::int64_t in_head = r % head_rows;
        return r - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
    }
    [[nodiscard]] const std::byte* row(std::int64_t r) const {
        return data + static_cast<std::size_t>(stored_row(r)) * row_bytes();
    }
};

/// Writes row `row` of `tensor` as float32 to `out`, which has `tensor.cols` places.
/// Rounded at most once: every stored type is a subset of float32, a product that float32 holds, or
/// the sum of such a product and a minimum. To a
/// merged tensor its low-rank update is added (low_rank.hpp).
void dequantize_row(const TensorView& tensor, std::int64_t row, std::span<float> out);

[[nodiscard]] float half_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_half(float value);  // round to nearest even
[[nodiscard]] float bfloat_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_bfloat(float value);  // round to nearest even, NaN stays NaN

}  // namespace paceline
