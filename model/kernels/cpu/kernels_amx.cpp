// The CPU kernels for AMX: matrix products and the packing of their inputs; the others are
// AVX-512's.
//
// BF16 is multiplied by tiles for any number of rows, since the tiles round otherwise than
// AVX-512's products. Quantised weights have the same bits either way, so whole panels of 16 rows
// go to the tiles and the rows that remain to the code of AVX-512, compiled here again. So do F32
// and F16, whose inputs tiles would round.
#include "model/kernels/cpu/elementwise.inl.hpp"
#include "model/kernels/cpu/gemm.inl.hpp"
#include "model/kernels/cpu/kernel_tables.hpp"
#include "model/kernels/cpu/simd_avx512.hpp"

namespace paceline {
namespace {

/// A type of its own, so that templates over it are not linked with those compiled for AVX-512. The
/// processors with AMX are Intel's, where one row takes up to 1.5 times as long with one prefetch
/// of a whole group.
struct SimdAmx : SimdAvx512 {
    static constexpr bool kPrefetchesGroups = false;
    static constexpr bool kPrefetchesBlocks = false;
};

}  // namespace
}  // namespace paceline

#include "model/kernels/cpu/gemm_amx_bf16.inl.hpp"
#include "model/kernels/cpu/gemm_amx_int8.inl.hpp"

namespace paceline {
namespace {

int wide_panels(int rows) {
    return rows / kWideRows;
}

/// The rows after the wide panels, as rows of their own.
PackedRows remaining(const PackedRows& rows) {
    return rows.from(wide_panels(rows.rows()) * kWideRows);
}

void pack_bf16(const float* x, Columns columns, std::uint16_t* out) {
    for (int c = columns.first; c < columns.last || c % kPair != 0; c += SimdAmx::kLanes) {
        float tail[SimdAmx::kLanes] = {};
        for (int l = 0; c + l < columns.last && l < SimdAmx::kLanes; ++l) tail[l] = x[c + l];
        SimdAmx::store_bfloat(out + c, SimdAmx::load(tail));
    }
}

void pack_wide_int8(const float* x, Columns columns, const PackedRows& to, int row) {
    const Panel panel{row / kWideRows * kWideRows, kWideRows};
    const int lane = row % kWideRows;
    std::int8_t* out = to.int8(panel) + std::ptrdiff_t{lane} * kGroup * to.groups();
    for (int c = columns.first; c < columns.last || c % kPair != 0; c += kGroup) {
        float group[kGroup] = {};
        for (int k = 0; c + k < columns.last && k < kGroup; ++k) group[k] = x[c + k];
        const int at = c / kGroup * kWideRows + lane;
        elementwise::quantize_group<SimdAmx>(group, out + c, 4,
                                             {to.scales(panel) + at, to.sums(panel) + at,
                                              to.counts(panel) + at, to.halves(panel) + at});
    }
}

void pack_row(const float* x, Columns columns, const PackedRows& to, int row) {
    if (to.type() == ActivationType::BF16) return pack_bf16(x, columns, to.bf16_row(row));
    if (to.type() == ActivationType::F32) return kAvx512Kernels.pack_row(x, columns, to, row);
    const int wide = wide_panels(to.rows()) * kWideRows;
    if (row < wide) return pack_wide_int8(x, columns, to, row);
    kAvx512Kernels.pack_row(x, columns, remaining(to), row - wide);
}

using MultiplyWide = void (*)(const GemmArgs& args, int panels, int first_tile, int last_tile);

MultiplyWide multiply_wide_of(PackedType type) {
    switch (type) {
        case PackedType::F32:
        case PackedType::BF16:
        case PackedType::F16:
            break;  // not quantised
        case PackedType::Int8:
            return amx::multiply_wide<PackedType::Int8>;
        case PackedType::Q4:
            return amx::multiply_wide<PackedType::Q4>;
        case PackedType::Q4Sym:
            return amx::multiply_wide<PackedType::Q4Sym>;
        case PackedType::Q5_0:
            return amx::multiply_wide<PackedType::Q5_0>;
        case PackedType::Q5_1:
            return amx::multiply_wide<PackedType::Q5_1>;
        case PackedType::Q2K:
            return amx::multiply_wide<PackedType::Q2K>;
        case PackedType::Q3K:
            return amx::multiply_wide<PackedType::Q3K>;
        case PackedType::Q4K:
            return amx::multiply_wide<PackedType::Q4K>;
        case PackedType::Q5K:
            return amx::multiply_wide<PackedType::Q5K>;
        case PackedType::Q6K:
            return amx::multiply_wide<PackedType::Q6K>;
        case PackedType::IQ4NL:
            return amx::multiply_wide<PackedType::IQ4NL>;
        case PackedType::IQ4XS:
            return amx::multiply_wide<PackedType::IQ4XS>;
        case PackedType::MXFP4:
            return amx::multiply_wide<PackedType::MXFP4>;
    }
    return nullptr;
}

void multiply(const GemmArgs& args, int first_tile, int last_tile) {
    const PackedType type = args.weights->type;
    if (type == PackedType::BF16) return amx::multiply_bf16(args, first_tile, last_tile);
    const int panels = is_plain(type) ? 0 : wide_panels(args.x->rows());
    if (panels == 0) return gemm::run<SimdAmx>(args, first_tile, last_tile);
    multiply_wide_of(type)(args, panels, first_tile, last_tile);
    const PackedRows rest = remaining(*args.x);
    if (rest.rows() == 0) return;
    GemmArgs others = args;
    others.x = &rest;
    others.y += panels * kWideRows;
    gemm::run<SimdAmx>(others, first_tile, last_tile);
}

}  // namespace

const KernelTable& amx_kernels() {
    static const KernelTable table = [] {
        KernelTable made = kAvx512Kernels;
        made.isa = Isa::Amx;
        made.gemm = multiply;
        made.pack_row = pack_row;
        return made;
    }();
    return table;
}

}  // namespace paceline
