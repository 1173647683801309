// wgmma.mma_async m64nNk16 of bf16 into float sums, for N = 8, 64 and 128, as the PTX ISA has it
// ("Asynchronous warpgroup level matrix instructions"). Included by device_nvcc.cuh, and by the
// test of its bits; only code of compute capability 9.0a may call it.
//
// One warpgroup, 128 threads, multiplies 64 rows of A by N rows of B, both with their k numbers
// next to each other. B lies in shared memory, A there or in registers. With w = warp, g = lane / 4
// and t = lane % 4 thread sum d[i] is that of row 16 w + g + 8 (i / 2 % 2) and of column 8 (i / 4)
// + 2 t + i % 2; a thread's words of A are those of mma.m16n8k16 (device.cuh) for rows 16 w .. 16 w
//   + 15.
//
// In shared memory without a swizzle an operand consists of core matrices of 8 rows x 16 bytes,
// whose rows are next to each other. Here they lie so:
//
//     chunk of 8 k -> row -> 8 numbers          (16 bytes a row, a chunk is 16 x rows bytes)
//
// The next 8 rows begin 128 bytes on (stride offset); the next 8 k begin a chunk on (leading
// offset).
#pragma once

#include <cstdint>

namespace paceline::cuda::wgmma {

/// Where the rows of A are.
enum class Rows : std::uint8_t { Shared, Registers };

/// 64 rows of A and 16 k: one of the two, as the instruction wants it.
struct Source {
    std::uint64_t descriptor;  // Rows::Shared
    std::uint32_t words[4];    // Rows::Registers
};

/// The matrix descriptor of an operand of `rows` rows at `shared`, 16-byte aligned: bits 0 to 13
/// address, 16 to 29 leading offset, 32 to 45 stride offset, each in units of 16 bytes; bits 62 and
/// 63: no swizzle.
PACE_DEVICE std::uint64_t descriptor_of(const void* shared, int rows) {
    const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(shared));
    const auto leading = static_cast<std::uint64_t>(16 * rows);
    constexpr std::uint64_t kStride = 128;
    return ((address & 0x3FFFFU) >> 4U) | ((leading >> 4U) << 16U) | ((kStride >> 4U) << 32U);
}

/// Makes what threads have written to shared memory visible to wgmma, which reads by another way.
PACE_DEVICE void publish_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// In front of the first wgmma, and of one whose registers other instructions have written.
PACE_DEVICE void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Waits for all products so far.
PACE_DEVICE void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/// Keeps the compiler from using sums before the products that write them have ended.
template <int kCount>
PACE_DEVICE void hold(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// d += A B of 64 x kWidth sums and 16 k, or d = A B if `add` is 0. Between begin_products() and
/// end_products().
template <int kWidth, Rows kRows>
PACE_DEVICE void multiply(float (&d)[kWidth / 2], const Source& a, std::uint64_t b, int add = 1);

// The thread's sums as operands: their registers, and their names in the instruction.
#define PACE_SUMS_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define PACE_SUMS_16(i) \
    PACE_SUMS_4(i), PACE_SUMS_4((i) + 4), PACE_SUMS_4((i) + 8), PACE_SUMS_4((i) + 12)
#define PACE_SUMS_32(i) PACE_SUMS_16(i), PACE_SUMS_16((i) + 16)
#define PACE_SUMS_64(i) PACE_SUMS_32(i), PACE_SUMS_32((i) + 32)
#define PACE_NAMES_4 "%0, %1, %2, %3"
#define PACE_NAMES_32                                                              \
    PACE_NAMES_4                                                                   \
    ", %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PACE_NAMES_64                                                                    \
    PACE_NAMES_32                                                                        \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// The instruction: its width, the names of the sums, of A, of B's descriptor and of a word that
// says whether d is added to or replaced, and the transpose flags (none).
#define PACE_WGMMA(width, sums, a, b, p, transposed)                                    \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " p                                               \
    ", 0;\n"                                                                            \
    "wgmma.mma_async.sync.aligned.m64n" width "k16.f32.bf16.bf16 {" sums "}, " a ", " b \
    ", p, 1, 1, " transposed ";\n}"

template <>
PACE_DEVICE void multiply<8, Rows::Shared>(float (&d)[4],
                                           const Source& a,
                                           std::uint64_t b,
                                           int add) {
    asm volatile(PACE_WGMMA("8", PACE_NAMES_4, "%4", "%5", "%6", "0, 0")
                 : PACE_SUMS_4(0)
                 : "l"(a.descriptor), "l"(b), "r"(add));
}

template <>
PACE_DEVICE void multiply<8, Rows::Registers>(float (&d)[4],
                                              const Source& a,
                                              std::uint64_t b,
                                              int add) {
    asm volatile(PACE_WGMMA("8", PACE_NAMES_4, "{%4, %5, %6, %7}", "%8", "%9", "0")
                 : PACE_SUMS_4(0)
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "l"(b),
                   "r"(add));
}

template <>
PACE_DEVICE void multiply<64, Rows::Shared>(float (&d)[32],
                                            const Source& a,
                                            std::uint64_t b,
                                            int add) {
    asm volatile(PACE_WGMMA("64", PACE_NAMES_32, "%32", "%33", "%34", "0, 0")
                 : PACE_SUMS_32(0)
                 : "l"(a.descriptor), "l"(b), "r"(add));
}

template <>
PACE_DEVICE void multiply<64, Rows::Registers>(float (&d)[32],
                                               const Source& a,
                                               std::uint64_t b,
                                               int add) {
    asm volatile(PACE_WGMMA("64", PACE_NAMES_32, "{%32, %33, %34, %35}", "%36", "%37", "0")
                 : PACE_SUMS_32(0)
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "l"(b),
                   "r"(add));
}

template <>
PACE_DEVICE void multiply<128, Rows::Shared>(float (&d)[64],
                                             const Source& a,
                                             std::uint64_t b,
                                             int add) {
    asm volatile(PACE_WGMMA("128", PACE_NAMES_64, "%64", "%65", "%66", "0, 0")
                 : PACE_SUMS_64(0)
                 : "l"(a.descriptor), "l"(b), "r"(add));
}

template <>
PACE_DEVICE void multiply<128, Rows::Registers>(float (&d)[64],
                                                const Source& a,
                                                std::uint64_t b,
                                                int add) {
    asm volatile(PACE_WGMMA("128", PACE_NAMES_64, "{%64, %65, %66, %67}", "%68", "%69", "0")
                 : PACE_SUMS_64(0)
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "l"(b),
                   "r"(add));
}

#undef PACE_WGMMA
#undef PACE_NAMES_64
#undef PACE_NAMES_32
#undef PACE_NAMES_4
#undef PACE_SUMS_64
#undef PACE_SUMS_32
#undef PACE_SUMS_16
#undef PACE_SUMS_4

}  // namespace paceline::cuda::wgmma
