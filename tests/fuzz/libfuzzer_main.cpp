// With libFuzzer: now and then a valid input instead of a mutation, so that it need not find
// magic numbers and checks before it gets anywhere.
#include <algorithm>

#include "tests/fuzz/fuzz.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                               std::size_t size,
                                               std::size_t size_max,
                                               unsigned seed) {
    using namespace paceline::test;
    SeededRandom random{seed};
    if (random.one_in(16)) {
        const FuzzBytes input = valid_input(random);
        size = std::min(input.size(), size_max);
        std::copy_n(input.begin(), size, data);
    }
    return LLVMFuzzerMutate(data, size, size_max);
}
