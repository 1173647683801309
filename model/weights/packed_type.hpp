// PackedType: the type in which a backend holds a matrix, and how codes and scales of a quantised
// type give its numbers.
//
// A number of a quantised type is stored as a code of 2 to 8 bits. Its value is `scale * (code -
// offset)`, or the code's entry in a table times the scale, or `scale * code + minimum`
// (BlockFormat). Each backend has its own order of codes and scales:
// model/kernels/cpu/packed_blocks.hpp, model/kernels/cuda/gemm/gemm_records.hpp.
//
//     form             scales                              value (n: code_number())   types
//     Half             f16 d                               d n                        Q5_0, IQ4_NL
//     HalfMinimum      f16 d, f16 m                        d n + m                    Q5_1
//     Power            u8 e                                2^(e - 128) n              MXFP4
//     Block            i8 s; d of 256 inputs               d s n                      IQ4_XS
//     BlockHalves      i8 s per 16 inputs; d of 256        d s n                      Q3_K, Q6_K
//     BlockMinimum     u8 s, u8 t; d, dmin of 256          d s n - dmin t             Q4_K, Q5_K
//     BlockMinima      u8 s + 16 t per 16; d, dmin of 256  d s n - dmin t             Q2_K
//
// A scale covers 32 inputs unless the table says otherwise. Int8, Q4 and Q4Sym are Half,
// HalfMinimum and Half.
//
// Pure functions. C++17: kernels include it too, but cannot call code_number(), whose tables lie in
// host memory.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace paceline {

enum class StoredType : std::uint8_t;  // tensor.hpp

/// Q4 and Q4Sym keep Q4_1 and Q4_0 blocks of a file exactly, Int8 keeps Q8_0. F16 is a CPU's alone
/// (gpu_type() in model/cpu/cpu_options.hpp). The types from Q5_0 on are block types: each keeps
/// blocks of the stored type of its name exactly, and can be made of no other type.
enum class PackedType : std::uint8_t {
    F32,
    BF16,
    F16,
    Int8,
    Q4,
    Q4Sym,
    Q5_0,
    Q5_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    IQ4NL,
    IQ4XS,
    MXFP4
};

[[nodiscard]] std::string_view name(PackedType type);

/// Whether `type` holds numbers, without scales: the first ones.
[[nodiscard]] constexpr bool is_plain(PackedType type) {
    return type <= PackedType::F16;
}
/// Whether `type` is a block type.
[[nodiscard]] constexpr bool is_block_type(PackedType type) {
    return type >= PackedType::Q5_0;
}
/// The stored type whose numbers `type` keeps exactly: Q8_0 for Int8, Q4_1 for Q4, a block type's
/// own.
[[nodiscard]] StoredType stored_type(PackedType type);
/// The type that keeps the numbers of `stored` exactly.
[[nodiscard]] PackedType natural_type(StoredType stored);

enum class ScaleForm : std::uint8_t {
    Half,
    HalfMinimum,
    Power,
    Block,
    BlockHalves,
    BlockMinimum,
    BlockMinima
};

enum class CodeTable : std::uint8_t { None, Iq4, Mxfp4 };

inline constexpr std::array<std::int8_t, 16> kIq4Table = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                          1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of the 4-bit floats (E2M1).
inline constexpr std::array<std::int8_t, 16> kMxfp4Table = {0, 1,  2,  3,  4,  6,  8,  12,
                                                            0, -1, -2, -3, -4, -6, -8, -12};

/// The codes and scales of a quantised type.
struct BlockFormat {
    int low_bits;  // 2, 4 or 8
    int top_bits;  // 0, 1 or 2, above them
    int offset;    // subtracted from a code; with a table, added to its entries by CPU kernels
    CodeTable table;
    ScaleForm form;
};

[[nodiscard]] constexpr BlockFormat block_format(PackedType type) {
    switch (type) {
        case PackedType::Q5_0:
            return {4, 1, 16, CodeTable::None, ScaleForm::Half};
        case PackedType::Q5_1:
            return {4, 1, 0, CodeTable::None, ScaleForm::HalfMinimum};
        case PackedType::Q2K:
            return {2, 0, 0, CodeTable::None, ScaleForm::BlockMinima};
        case PackedType::Q3K:
            return {2, 1, 4, CodeTable::None, ScaleForm::BlockHalves};
        case PackedType::Q4K:
            return {4, 0, 0, CodeTable::None, ScaleForm::BlockMinimum};
        case PackedType::Q5K:
            return {4, 1, 0, CodeTable::None, ScaleForm::BlockMinimum};
        case PackedType::Q6K:
            return {4, 2, 32, CodeTable::None, ScaleForm::BlockHalves};
        case PackedType::IQ4NL:
            return {4, 0, 128, CodeTable::Iq4, ScaleForm::Half};
        case PackedType::IQ4XS:
            return {4, 0, 128, CodeTable::Iq4, ScaleForm::Block};
        case PackedType::MXFP4:
            return {4, 0, 12, CodeTable::Mxfp4, ScaleForm::Power};
        case PackedType::Int8:
            return {8, 0, 128, CodeTable::None, ScaleForm::Half};
        case PackedType::Q4:
            return {4, 0, 0, CodeTable::None, ScaleForm::HalfMinimum};
        case PackedType::Q4Sym:
            return {4, 0, 8, CodeTable::None, ScaleForm::Half};
        case PackedType::F32:
        case PackedType::BF16:
        case PackedType::F16:
            break;
    }
    return {};
}

/// The number of a code for a scale of 1, without a minimum.
[[nodiscard]] constexpr float code_number(const BlockFormat& format, std::uint8_t code) {
    if (format.table == CodeTable::Iq4) return kIq4Table[code];
    if (format.table == CodeTable::Mxfp4) return kMxfp4Table[code];
    return static_cast<float>(code - format.offset);
}

/// Whether d, and dmin where there is one, are shared by 256 inputs.
[[nodiscard]] constexpr bool has_head(ScaleForm form) {
    return form >= ScaleForm::Block;
}
[[nodiscard]] constexpr bool has_minimum(ScaleForm form) {
    return form == ScaleForm::HalfMinimum || form >= ScaleForm::BlockMinimum;
}
/// A scale per 16 inputs.
[[nodiscard]] constexpr bool has_halves(ScaleForm form) {
    return form == ScaleForm::BlockHalves || form == ScaleForm::BlockMinima;
}

}  // namespace paceline
