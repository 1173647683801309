// Products with every packed type on one core: decoding (1 row), a verify batch (8) and prefill
// (64). What the columns mean: README.md.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <random>
#include <string_view>
#include <vector>

#include "model/kernels/cpu/activations.hpp"
#include "model/kernels/cpu/huge_arena.hpp"
#include "model/kernels/cpu/kernel_table.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"

namespace {

using namespace paceline;  // NOLINT(google-build-using-namespace): a program of one file

constexpr int kSide = 4096;
constexpr std::size_t kBytesMin = 160U << 20U;
constexpr int kRows[] = {1, 8, 64};
constexpr std::size_t kCases = std::size(kRows);

struct Type {
    StoredType stored;
    PackedType packed;
};
constexpr Type kTypes[] = {
    {StoredType::Q8_0, PackedType::Int8},    {StoredType::Q4_0, PackedType::Q4Sym},
    {StoredType::Q4_1, PackedType::Q4},      {StoredType::Q4_K, PackedType::Q4K},
    {StoredType::Q5_0, PackedType::Q5_0},    {StoredType::Q5_1, PackedType::Q5_1},
    {StoredType::Q5_K, PackedType::Q5K},     {StoredType::Q6_K, PackedType::Q6K},
    {StoredType::IQ4_NL, PackedType::IQ4NL}, {StoredType::IQ4_XS, PackedType::IQ4XS},
    {StoredType::Q3_K, PackedType::Q3K},     {StoredType::Q2_K, PackedType::Q2K},
    {StoredType::MXFP4, PackedType::MXFP4},  {StoredType::BF16, PackedType::BF16},
    {StoredType::F16, PackedType::F16}};

double seconds() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Random bits, such that no float16 among them is infinite; MXFP4's scales are those of real
/// files.
PackedMatrix packed(const Type& type, std::byte* to) {
    const TypeTraits shape = traits(type.stored);
    std::vector<std::byte> bytes(std::size_t{kSide} * kSide / shape.block_elements *
                                 shape.block_bytes);
    std::mt19937_64 rng{1};
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng() & 0x3FU);
    // Its first byte is an exponent: a small one would be a denormal number, which some cores
    // multiply slowly.
    for (std::size_t at = 0; type.stored == StoredType::MXFP4 && at < bytes.size();
         at += shape.block_bytes)
        bytes[at] = static_cast<std::byte>(120 + rng() % 4);
    const TensorView tensor{"w", type.stored, kSide, kSide, bytes.data(), bytes.size()};
    PackedMatrix matrix{type.packed, kSide, kSide, to, prefetches_past_cache()};
    std::vector<float> scratch(kSide);
    if (pack_tiles(tensor, matrix, 0, matrix.tiles(), scratch)) std::abort();
    return matrix;
}

class Bench {
public:
    Bench(const Type& type, const KernelTable& kernels) : kernels_{kernels} {
        const std::size_t one = PackedMatrix{type.packed, kSide, kSide, nullptr}.bytes();
        copies_ = (kBytesMin + one - 1) / one;
        Result<HugeArena> arena = HugeArena::make(copies_ * (one + HugeArena::kAlignment));
        if (!arena) std::abort();
        arena_ = std::move(arena).value();
        for (std::size_t c = 0; c < copies_; ++c) {
            PackedMatrix matrix = c > 0 ? matrices_[0] : packed(type, arena_.take(one));
            if (c > 0) {
                matrix.data = arena_.take(one);
                std::memcpy(matrix.data, matrices_[0].data, one);
            }
            matrices_.push_back(matrix);
        }
        bits_ = static_cast<double>(8 * one) / kSide / kSide;
    }

    void round() {
        for (std::size_t i = 0; i < kCases; ++i) times_[i].push_back(run(kRows[i]));
    }
    /// Nanoseconds a weight and row.
    [[nodiscard]] double time(std::size_t i) const { return median(times_[i]); }
    [[nodiscard]] double bits() const { return bits_; }
    [[nodiscard]] double bandwidth() const { return bits_ / 8 / time(0); }

private:
    double run(int rows) {
        Activations memory{rows, kSide};
        const PackedRows x = memory.shaped(activation_for(matrices_[0].type), rows, kSide);
        std::mt19937 rng{2};
        std::vector<float> values(kSide);
        for (int r = 0; r < rows; ++r) {
            for (float& value : values) value = static_cast<float>(rng() % 255) - 127.0f;
            kernels_.pack_row(values.data(), {0, kSide}, x, r);
        }
        std::vector<float> y(static_cast<std::size_t>(rows) * kSide);
        std::vector<float*> pointers;
        for (int r = 0; r < rows; ++r) pointers.push_back(y.data() + std::ptrdiff_t{r} * kSide);
        const std::size_t count = rows > 8 ? std::min<std::size_t>(copies_, 2) : copies_;
        const double begin = seconds();
        for (std::size_t c = 0; c < count; ++c)
            kernels_.gemm({&matrices_[c], &x, pointers.data(), 0, false}, 0, matrices_[c].tiles());
        return (seconds() - begin) * 1e9 / static_cast<double>(count) / kSide / kSide / rows;
    }

    const KernelTable& kernels_;
    HugeArena arena_;
    std::vector<PackedMatrix> matrices_;
    std::vector<double> times_[kCases];
    std::size_t copies_ = 0;
    double bits_ = 0;
};

/// GB/s of a plain sum over memory that no cache holds.
double plain_bandwidth() {
    const std::vector<std::uint64_t> memory(kBytesMin / 8, 1);
    double best = 0;
    for (int i = 0; i < 5; ++i) {
        const double begin = seconds();
        std::uint64_t sums[8] = {};
        for (std::size_t k = 0; k < memory.size(); k += 8)
            for (std::size_t s = 0; s < 8; ++s) sums[s] += memory[k + s];
        const double taken = seconds() - begin;
        if (sums[3] == 0) std::abort();
        best = std::max(best, static_cast<double>(kBytesMin) / 1e9 / taken);
    }
    return best;
}

}  // namespace

int main(int argc, char** argv) {
    Isa isa = best_isa();
    int rounds = 7;
    for (int a = 1; a + 1 < argc; a += 2) {
        if (std::string_view{argv[a]} == "--isa") isa = parse_isa(argv[a + 1]).value_or(isa);
        if (std::string_view{argv[a]} == "--rounds") rounds = std::max(1, std::atoi(argv[a + 1]));
    }
    std::vector<Bench> benches;
    for (const Type& type : kTypes) benches.emplace_back(type, kernels(isa));
    for (int r = 0; r < rounds; ++r) {
        for (Bench& bench : benches) bench.round();
    }
    fmt::print("{}, {} x {}, one thread; a plain sum reads {:.1f} GB/s\n", name(isa), kSide, kSide,
               plain_bandwidth());
    fmt::print("{:8} {:>5} {:>8} {:>6} {:>7} | {:>8} {:>7} | {:>8} {:>7}\n", "type", "bits",
               "1: ns/k", "GB/s", "x int8", "8: ns/k", "x int8", "64: ns/k", "x int8");
    const Bench& int8 = benches[0];
    for (std::size_t t = 0; t < benches.size(); ++t) {
        const Bench& one = benches[t];
        fmt::print("{:8} {:5.2f} {:8.2f} {:6.1f} {:7.2f} | {:8.2f} {:7.2f} | {:8.2f} {:7.2f}\n",
                   traits(kTypes[t].stored).name, one.bits(), 1e3 * one.time(0), one.bandwidth(),
                   int8.time(0) / one.time(0), 1e3 * one.time(1), int8.time(1) / one.time(1),
                   1e3 * one.time(2), int8.time(2) / one.time(2));
    }
    return 0;
}
