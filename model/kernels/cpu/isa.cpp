#include "model/kernels/cpu/isa.hpp"

#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace paceline {
namespace {

#if defined(__x86_64__)
bool has_amx() {
    constexpr unsigned kBf16 = 1U << 22U;
    constexpr unsigned kTile = 1U << 24U;
    constexpr unsigned kInt8 = 1U << 25U;
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    return (edx & kBf16) != 0 && (edx & kTile) != 0 && (edx & kInt8) != 0;
}

/// Linux enables the tile registers, 8 KiB of state per thread, only for processes that ask.
bool tiles_permitted() {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

bool supports(Isa isa) {
    switch (isa) {
        case Isa::Portable:
            return true;
#if defined(__x86_64__)
        case Isa::Avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("f16c");
        case Isa::Avx512:
            return supports(Isa::Avx2) && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
                   __builtin_cpu_supports("avx512bf16");
        case Isa::Amx: {
            static const bool permitted = has_amx() && tiles_permitted();
            return supports(Isa::Avx512) && permitted;
        }
#else
        case Isa::Avx2:
        case Isa::Avx512:
        case Isa::Amx:
            return false;
#endif
    }
    return false;
}

Isa best_isa() {
    if (supports(Isa::Amx)) return Isa::Amx;
    if (supports(Isa::Avx512)) return Isa::Avx512;
    if (supports(Isa::Avx2)) return Isa::Avx2;
    return Isa::Portable;
}

std::string_view name(Isa isa) {
    switch (isa) {
        case Isa::Portable:
            return "portable";
        case Isa::Avx2:
            return "avx2";
        case Isa::Avx512:
            return "avx512";
        case Isa::Amx:
            return "amx";
    }
    return "?";
}

std::optional<Isa> parse_isa(std::string_view text) {
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx}) {
        if (text == name(isa)) return isa;
    }
    return std::nullopt;
}

bool prefetches_past_cache() {
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

std::size_t last_level_cache() {
    const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{32} << 20U;
}

}  // namespace paceline
