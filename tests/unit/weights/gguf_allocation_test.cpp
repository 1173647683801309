// A file may claim gigabytes; the reader may not believe it. Counts what is really allocated.
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "tests/unit/weights/expectations.hpp"

namespace {
std::atomic<std::size_t> largest_request{0};
}  // namespace

// The whole program's operator new, so that no allocation of the reader goes unseen.
[[gnu::noinline]] void* operator new(std::size_t size) {
    std::size_t largest = largest_request.load();
    while (size > largest && !largest_request.compare_exchange_weak(largest, size)) {
    }
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

std::size_t largest_request_for(const Bytes& bytes) {
    const ExactBytes exact(bytes);
    largest_request = 0;
    const Result<ModelParts> parts = read_gguf(exact.span());
    return largest_request.load();
}

TEST_CASE("no single allocation is larger than a few times the file (CVE-2026-27940)") {
    const Bytes whole = tiny_model(smallest_model()).bytes();
    const std::size_t bound = 16 * whole.size();
    CHECK(largest_request_for(whole) > 0);
    CHECK(largest_request_for(whole) <= bound);
    for (const std::uint64_t claim :
         {std::uint64_t{1} << 16U, std::uint64_t{1} << 20U, std::uint64_t{1} << 30U,
          std::numeric_limits<std::uint64_t>::max()}) {
        for (std::size_t at = 8; at + 8 <= whole.size(); ++at) {
            Bytes mutant = whole;
            std::memcpy(mutant.data() + at, &claim, sizeof claim);
            const std::size_t largest = largest_request_for(mutant);
            if (largest > bound)
                FAIL("a request of " << largest << " bytes for a claim at byte " << at);
        }
    }
}

}  // namespace
}  // namespace paceline
