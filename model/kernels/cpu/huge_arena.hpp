// HugeArena: one anonymous block of memory in 2 MiB pages, handed out in slices.
//
// Weights that stream from memory every token are worth 1.2 to 1.35 times more in huge pages
// than in 4 KiB ones (fewer TLB misses), and a file mapping cannot have them. Pages that are
// never touched cost nothing. Owns the block; slices live as long as the arena.
#pragma once

#include <cstddef>

#include "ipc/base/result.hpp"

namespace paceline {

class HugeArena {
public:
    HugeArena() = default;
    /// Errors: OutOfMemory with the size asked for.
    static Result<HugeArena> make(std::size_t bytes);

    HugeArena(HugeArena&& other) noexcept;
    HugeArena& operator=(HugeArena&& other) noexcept;
    HugeArena(const HugeArena&) = delete;
    HugeArena& operator=(const HugeArena&) = delete;
    ~HugeArena();

    /// The next `bytes` of the block, zeroed, on a cache line. What make() was given must suffice.
    std::byte* take(std::size_t bytes);
    [[nodiscard]] std::size_t used() const { return used_; }

    static constexpr std::size_t kAlignment = 64;

private:
    std::byte* mapping_ = nullptr;
    std::size_t mapped_ = 0;
    std::byte* begin_ = nullptr;  // on a 2 MiB border
    std::size_t size_ = 0;
    std::size_t used_ = 0;
};

}  // namespace paceline
