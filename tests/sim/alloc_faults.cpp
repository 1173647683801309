#include "tests/sim/alloc_faults.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

std::int64_t allocations_left = -1;

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = alignment <= alignof(std::max_align_t)
                       ? std::malloc(bytes == 0 ? 1 : bytes)
                       : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

namespace paceline::testing {

std::int64_t set_allocations_left(std::int64_t left) {
    return std::exchange(allocations_left, left);
}

}  // namespace paceline::testing

void* operator new(std::size_t bytes) {
    return allocate(bytes, alignof(std::max_align_t));
}
/// stable_sort's buffer comes from here: a fault is an answer, and the delete below must fit.
void* operator new(std::size_t bytes, const std::nothrow_t& /*no_throw*/) noexcept {
    if (allocations_left >= 0 && allocations_left-- == 0) return nullptr;
    return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
