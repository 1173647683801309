// Isa: which instruction set the CPU kernels use, picked at run time.
//
// Equality of bits holds inside one Isa: sums are ordered alike everywhere, but bf16 dot products
// and fused multiply-adds round differently from one instruction set to the next. Avx512 and Amx
// differ in BF16 alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace paceline {

enum class Isa : std::uint8_t {
    Portable,  // what every compiler can do
    Avx2,      // AVX2, FMA, F16C
    Avx512,    // AVX-512 F, BW, VL, DQ, VNNI, BF16
    Amx,       // the same, and AMX tiles of int8 and bfloat16
};

/// The best instruction set of this machine.
[[nodiscard]] Isa best_isa();
/// Whether this machine can run the kernels of `isa`. Asks the system for the tile registers of
/// AMX, once per process; threads and forked processes inherit them.
[[nodiscard]] bool supports(Isa isa);
[[nodiscard]] std::string_view name(Isa isa);
[[nodiscard]] std::optional<Isa> parse_isa(std::string_view text);

/// Whether weights that no cache can hold are prefetched around it (PREFETCHNTA) rather than
/// through it. Measured on AMD (Zen 3 to 5), where it keeps the weights of a draft in the cache; on
/// a Xeon with AMX it takes 1.3 to 2.8 times as long.
[[nodiscard]] bool prefetches_past_cache();

/// Bytes of the last-level cache that this core shares; 32 MiB where the system does not say.
[[nodiscard]] std::size_t last_level_cache();

}  // namespace paceline
