// Whether wgmma gives the bits of a chain of mma.sync m16n8k16 products: that decides whether a
// product kernel on wgmma may stand in for one on mma.sync, or needs an equality class of its own.
//
// Sums of whole numbers that float holds exactly must be exact: that proves layouts and descriptors
// of every kernel. Other sums must lie within the rounding errors of their number of terms. Whether
// they have equal bits is a finding, which is printed and fails nothing.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "model/kernels/cuda/gemm/gemm.hpp"
#include "tests/unit/cuda/device_arrays.hpp"
#include "tests/unit/cuda/wgmma/wgmma_kernels.hpp"

namespace paceline::cuda::test {
namespace {

constexpr int kRows = 128;
constexpr int kColumns = 128;
constexpr std::size_t kSums = std::size_t{kRows} * kColumns;
constexpr std::array kInputs{64, 256, 1024, 4096};

/// Says why where wgmma cannot be tested.
bool missing() {
    const std::string problem = wgmma_problem(use_device(0));
    if (problem.empty()) return false;
    std::printf("skipped: no wgmma: %s\n", problem.c_str());
    return true;
}

enum class Numbers : std::uint8_t {
    Whole,   // -3 to 3: every partial sum is exact, whatever the order
    Spread,  // of magnitudes from 2^-8 to 2^8: what a sum keeps of small terms depends on the order
    Normal,  // as in a model
};

const char* name(Numbers numbers) {
    switch (numbers) {
        case Numbers::Whole:
            return "whole numbers";
        case Numbers::Spread:
            return "magnitudes from 2^-8 to 2^8";
        case Numbers::Normal:
            return "normal numbers";
    }
    return "";
}

std::vector<float> numbers_of(Numbers kind, std::size_t count, unsigned seed) {
    std::mt19937 draw{seed};
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) {
        switch (kind) {
            case Numbers::Whole:
                value = static_cast<float>(static_cast<int>(draw() % 7) - 3);
                break;
            case Numbers::Spread: {
                const float mantissa = 1.0f + static_cast<float>(draw() % 128) / 128.0f;
                const int exponent = static_cast<int>(draw() % 17) - 8;
                value = std::ldexp(draw() % 2 == 0 ? mantissa : -mantissa, exponent);
                break;
            }
            case Numbers::Normal:
                value = bfloat_to_float(float_to_bfloat(normal(draw)));
                break;
        }
    }
    return values;
}

/// A product's inputs on the device, its exact sums, and how far a sum in floats may be from them.
struct Product {
    int inputs;
    OnDevice<std::uint16_t> a, b;
    std::vector<double> exact, bound;

    Product(Numbers kind, int k) : inputs{k}, exact(kSums), bound(kSums) {
        const auto width = static_cast<std::size_t>(k);
        const std::vector<float> left = numbers_of(kind, kRows * width, 1);
        const std::vector<float> right = numbers_of(kind, kColumns * width, 2);
        a = OnDevice<std::uint16_t>{bf16_of(left)};
        b = OnDevice<std::uint16_t>{bf16_of(right)};
        for (std::size_t i = 0; i < kSums; ++i) {
            const float* row = left.data() + i / kColumns * width;
            const float* column = right.data() + i % kColumns * width;
            double magnitude = 0.0;
            for (std::size_t at = 0; at < width; ++at) {
                // A product of two bf16 numbers has 16 bits: exact.
                const double term = static_cast<double>(row[at]) * static_cast<double>(column[at]);
                exact[i] += term;
                magnitude += std::abs(term);
            }
            // Each addition may lose up to two units of the 24th bit of what has been added so far.
            bound[i] = kind == Numbers::Whole ? 0.0 : std::ldexp(magnitude * k, -22);
        }
    }
};

/// Every kernel on wgmma.
struct Kernel {
    int width;
    bool a_in_registers;
};
std::vector<Kernel> kernels() {
    std::vector<Kernel> all;
    for (const int width : {8, 64, 128}) {
        all.push_back({width, false});
        all.push_back({width, true});
    }
    return all;
}

template <class Launch>
std::vector<float> sums_of(const Product& product, int slices, const Launch& launch) {
    const OnDevice<float> sums{std::vector<float>(kSums, std::nanf(""))};
    Stream stream;
    launch(stream, SumsCall{product.a.data(), product.b.data(), sums.data(), kRows, kColumns,
                            product.inputs, slices});
    stream.finish();
    return sums.take();
}

std::vector<float> mma_sums(const Product& product, int slices) {
    return sums_of(product, slices, launch_mma_chain);
}

std::vector<float> wgmma_sums(const Product& product, int slices, const Kernel& kernel) {
    return sums_of(product, slices, [&](Stream& stream, const SumsCall& call) {
        launch_wgmma_chain(stream, call, kernel.width, kernel.a_in_registers);
    });
}

/// How many of `sums` are wrong; those that are no numbers are.
std::size_t wrong(const Product& product, const std::vector<float>& sums) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < kSums; ++i) {
        const double off = std::abs(static_cast<double>(sums[i]) - product.exact[i]);
        if (!(off <= product.bound[i])) ++count;
    }
    return count;
}

std::uint32_t bits_of(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

std::size_t equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < kSums; ++i) count += bits_of(a[i]) == bits_of(b[i]) ? 1 : 0;
    return count;
}

/// One chain, and the slices that the product kernels cut so many inputs of bf16 into.
std::vector<int> orders(int inputs) {
    const int slices = slices_of(steps_of(WeightType::BF16, inputs));
    return slices == 1 ? std::vector{1} : std::vector{1, slices};
}

TEST_CASE("a chain of mma.sync and every wgmma give exact sums of whole numbers") {
    if (missing()) return;
    for (const int inputs : kInputs) {
        const Product product{Numbers::Whole, inputs};
        for (const int slices : orders(inputs)) {
            CAPTURE(inputs);
            CAPTURE(slices);
            CHECK(wrong(product, mma_sums(product, slices)) == 0);
            for (const Kernel& kernel : kernels()) {
                CAPTURE(kernel.width);
                CAPTURE(kernel.a_in_registers);
                CHECK(wrong(product, wgmma_sums(product, slices, kernel)) == 0);
            }
        }
    }
}

struct Compared {
    std::size_t sums = 0;
    std::size_t equal = 0;
};

/// Compares every kernel with the chain of mma.sync, and prints how many sums have equal bits.
void compare(Numbers kind, const Product& product, int slices, Compared& all) {
    const std::vector<float> chain = mma_sums(product, slices);
    CHECK(wrong(product, chain) == 0);
    for (const Kernel& kernel : kernels()) {
        CAPTURE(kernel.width);
        CAPTURE(kernel.a_in_registers);
        const std::vector<float> sums = wgmma_sums(product, slices, kernel);
        CHECK(wrong(product, sums) == 0);
        const std::size_t equal = equal_bits(sums, chain);
        std::printf(
            "wgmma n%d K=%d: %zu of %zu sums have the bits of the mma.sync chain "
            "(%s, A in %s, slices: %d)\n",
            kernel.width, product.inputs, equal, kSums, name(kind),
            kernel.a_in_registers ? "registers" : "shared memory", slices);
        all.sums += kSums;
        all.equal += equal;
    }
}

TEST_CASE("wgmma's sums are right to rounding; whether they have the bits of mma.sync is printed") {
    if (missing()) return;
    Compared all;
    for (const Numbers kind : {Numbers::Spread, Numbers::Normal}) {
        for (const int inputs : kInputs) {
            const Product product{kind, inputs};
            for (const int slices : orders(inputs)) {
                CAPTURE(name(kind));
                CAPTURE(inputs);
                CAPTURE(slices);
                compare(kind, product, slices, all);
            }
        }
    }
    if (all.equal == all.sums) std::printf("wgmma: the bits are equal (%zu sums)\n", all.sums);
    if (all.equal != all.sums)
        std::printf("wgmma: the bits differ (%zu of %zu sums)\n", all.sums - all.equal, all.sums);
}

}  // namespace
}  // namespace paceline::cuda::test
