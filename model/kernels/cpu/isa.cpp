#include "model/kernels/cpu/isa.hpp"

#include <unistd.h>

namespace paceline {

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
#else
        case Isa::Avx2:
        case Isa::Avx512:
            return false;
#endif
    }
    return false;
}

Isa best_isa() {
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
    }
    return "?";
}

std::optional<Isa> parse_isa(std::string_view text) {
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
        if (text == name(isa)) return isa;
    }
    return std::nullopt;
}

std::size_t last_level_cache() {
    const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{32} << 20U;
}

}  // namespace paceline
