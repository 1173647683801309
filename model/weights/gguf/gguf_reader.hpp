// GGUF v2/v3, byte level: header, typed key-values, tensor descriptions.
//
// Handles the layout of the bytes, not their meaning: every length, count and type
// is checked against the size of the file before memory is allocated or a value is read.
// Layout and limits: docs/file-formats.md. Pure functions over a span; all views in the results
// point into that span and live as long as it does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

// The limits. Real files stay far below them; malicious ones are refused before an allocation.
inline constexpr std::uint64_t kGgufKeysMax = 65'536;
inline constexpr std::uint64_t kGgufTensorsMax = 65'536;
inline constexpr std::uint64_t kGgufKeyBytesMax = 65'535;  // the format's own limit
inline constexpr std::uint64_t kGgufTensorNameBytesMax = 64;
inline constexpr std::uint64_t kGgufStringBytesMax = 1U << 20U;  // chat templates are the longest
inline constexpr std::uint32_t kGgufDimsMax = 4;
inline constexpr std::uint64_t kGgufAlignmentMax = 65'536;

/// Value types of the format; the numbers are those of the file.
enum class GgufType : std::uint32_t {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
};
[[nodiscard]] const char* name_of(GgufType type);

struct GgufValue {
    GgufType type = GgufType::U8;
    GgufType element = GgufType::U8;     // of an Array
    std::uint64_t count = 1;             // elements of an Array
    std::span<const std::byte> payload;  // scalar, text of a String, all elements of an Array
};

struct GgufTensorInfo {
    std::string_view name;
    std::uint32_t dim_count = 0;
    std::array<std::uint64_t, kGgufDimsMax> dims{1, 1, 1, 1};  // dims[0] is contiguous; all > 0
    std::uint32_t ggml_type = 0;
    std::uint64_t offset = 0;  // from the start of the data, a multiple of the alignment
};

struct GgufHeader {
    std::uint32_t version = 0;
    std::unordered_map<std::string_view, GgufValue> values;
    std::vector<GgufTensorInfo> tensors;  // in file order, names unique
    std::uint64_t alignment = 32;
    std::uint64_t data_start = 0;  // <= size of the file
};

/// A shard of a split model may have no tensors.
enum class GgufPart : std::uint8_t { Whole, Shard };

/// Whether it has the first bytes of a GGUF file.
[[nodiscard]] bool begins_like_gguf(std::span<const std::byte> bytes);

/// Parses everything in front of the tensor data. `file` is the name for messages.
/// Errors: BadFile, Unsupported (version 1, big-endian), naming file, field and value.
Result<GgufHeader> parse_gguf(std::span<const std::byte> bytes,
                              const std::string& file,
                              GgufPart part = GgufPart::Whole);

/// The strings of an Array of String, views into the file.
[[nodiscard]] std::vector<std::string_view> strings_of(const GgufValue& array);

}  // namespace paceline
