#include "model/kernels/cpu/huge_arena.hpp"

#include <cstdint>
#include <fmt/core.h>
#include <sys/mman.h>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
    return (value + to - 1) / to * to;
}

}  // namespace

Result<HugeArena> HugeArena::make(std::size_t bytes) {
    HugeArena arena;
    arena.size_ = round_up(bytes + kAlignment, kHugePage);
    arena.mapped_ = arena.size_ + kHugePage;  // room to move the start to a border
    void* mapping = mmap(nullptr, arena.mapped_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        arena.mapped_ = 0;
        return Error{Errc::OutOfMemory,
                     fmt::format("cannot reserve {} MiB of memory for the model", bytes >> 20)};
    }
    arena.mapping_ = static_cast<std::byte*>(mapping);
    const auto address = reinterpret_cast<std::uintptr_t>(mapping);
    arena.begin_ = arena.mapping_ + (round_up(address, kHugePage) - address);
    // Optional: without huge pages everything works, only slower.
    (void)madvise(arena.begin_, arena.size_, MADV_HUGEPAGE);
    return arena;
}

HugeArena::HugeArena(HugeArena&& other) noexcept
    : mapping_{std::exchange(other.mapping_, nullptr)},
      mapped_{std::exchange(other.mapped_, 0)},
      begin_{std::exchange(other.begin_, nullptr)},
      size_{std::exchange(other.size_, 0)},
      used_{std::exchange(other.used_, 0)} {}

HugeArena& HugeArena::operator=(HugeArena&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    std::swap(used_, other.used_);
    return *this;
}

HugeArena::~HugeArena() {
    if (mapping_ != nullptr) (void)munmap(mapping_, mapped_);
}

std::byte* HugeArena::take(std::size_t bytes) {
    const std::size_t rounded = round_up(bytes, kAlignment);
    PACE_CHECK(rounded <= size_ - used_, "the arena was sized for all its slices");
    std::byte* slice = begin_ + used_;
    used_ += rounded;
    return slice;
}

}  // namespace paceline
