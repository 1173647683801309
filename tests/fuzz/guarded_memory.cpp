#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.hpp"

namespace paceline::test {

GuardedMemory::GuardedMemory(std::size_t bytes_max) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (bytes_max + page - 1) / page * page;
    void* address = ::mmap(nullptr, page + bytes + page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PACE_CHECK(address != MAP_FAILED, "no memory to fuzz in");
    auto* first = static_cast<std::byte*>(address);
    PACE_CHECK(::mprotect(first, page, PROT_NONE) == 0, "mprotect");
    PACE_CHECK(::mprotect(first + page + bytes, page, PROT_NONE) == 0, "mprotect");
    memory_ = {first + page, bytes};
}

std::span<std::byte> GuardedMemory::last(std::size_t bytes) {
    const std::span<std::byte> part = memory_.last(bytes);
    std::memset(part.data(), 0, part.size());
    return part;
}

}  // namespace paceline::test
