// SeededRandom: the same numbers from the same seed, on every machine and with every library.
#pragma once

#include <cstdint>

namespace paceline::test {

/// splitmix64, by its authors' constants: small, and the same everywhere.
class SeededRandom {
public:
    explicit SeededRandom(std::uint64_t seed) : state_{seed} {}
    std::uint64_t next() {
        std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31);
    }
    /// In [0, limit).
    std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(next() % limit); }
    bool one_in(std::uint32_t limit) { return below(limit) == 0; }

private:
    std::uint64_t state_;
};

}  // namespace paceline::test
