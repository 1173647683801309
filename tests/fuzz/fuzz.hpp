// What every fuzzer here is made of: the entry function of libFuzzer, a maker of valid inputs
// for the driver to mutate (fuzz_driver.cpp), and a reader that takes an input apart.
//
// An input is a short script: the set-up, the calls, and where to write garbage. It is read from
// the front and may end anywhere; what is missing reads as 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ipc/base/check.hpp"
#include "tests/unit/ipc/seeded_random.hpp"

/// Runs one input; a broken promise of the code under test aborts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace paceline::test {

using FuzzBytes = std::vector<std::uint8_t>;

/// A valid input: one that the code under test accepts in full. By the fuzzer.
[[nodiscard]] FuzzBytes valid_input(SeededRandom& random);

class FuzzReader {
public:
    explicit FuzzReader(std::span<const std::uint8_t> bytes) : bytes_{bytes} {}
    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    template <class T>
    T take() {
        T value{};
        const std::size_t count = bytes_.size() < sizeof(T) ? bytes_.size() : sizeof(T);
        std::memcpy(&value, bytes_.data(), count);
        bytes_ = bytes_.subspan(count);
        return value;
    }
    std::uint8_t byte() { return take<std::uint8_t>(); }
    [[nodiscard]] std::span<const std::byte> rest(std::size_t count_max) {
        const std::size_t count = bytes_.size() < count_max ? bytes_.size() : count_max;
        const std::span<const std::uint8_t> part = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        return std::as_bytes(part);
    }

private:
    std::span<const std::uint8_t> bytes_;
};

/// Writes as a faulty peer might: `where` and `bytes` from the script.
inline void scribble(FuzzReader& script, std::span<std::byte> memory) {
    const std::size_t at = script.take<std::uint16_t>() % memory.size();
    const std::span<const std::byte> bytes = script.rest(1 + script.byte() % 16U);
    const std::size_t count = bytes.size() < memory.size() - at ? bytes.size() : memory.size() - at;
    std::memcpy(memory.data() + at, bytes.data(), count);
}

/// Memory that ends where the next page may not be touched.
class GuardedMemory {
public:
    explicit GuardedMemory(std::size_t bytes_max);
    /// The last `bytes` before the guard, of zeros.
    [[nodiscard]] std::span<std::byte> last(std::size_t bytes);

private:
    std::span<std::byte> memory_;
};

}  // namespace paceline::test
