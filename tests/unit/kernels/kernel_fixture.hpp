// What the kernel tests share: random numbers on a seed, and the instruction sets to try.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "model/kernels/cpu/isa.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/weights/tensor.hpp"

namespace paceline::testing {

/// The instruction sets this machine can run.
inline std::vector<Isa> runnable_isas() {
    std::vector<Isa> isas;
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx}) {
        if (supports(isa)) isas.push_back(isa);
    }
    return isas;
}

inline std::vector<float> random_floats(std::mt19937& rng, std::size_t count, float scale = 1.0f) {
    std::normal_distribution<float> normal{0.0f, scale};
    std::vector<float> values(count);
    for (float& value : values) value = normal(rng);
    return values;
}

/// A float32 tensor that owns its numbers.
struct OwnedTensor {
    std::vector<float> values;
    TensorView view;

    OwnedTensor(std::vector<float> numbers, int rows, int cols) : values{std::move(numbers)} {
        view = {"test",
                StoredType::F32,
                rows,
                cols,
                reinterpret_cast<const std::byte*>(values.data()),
                values.size() * sizeof(float)};
    }
};

/// A packed matrix that owns its bytes, 64-byte aligned.
struct OwnedMatrix {
    std::vector<std::byte> bytes;
    PackedMatrix matrix;

    OwnedMatrix(const TensorView& source, PackedType type) {
        matrix = {type, static_cast<int>(source.rows), static_cast<int>(source.cols), nullptr};
        // The kernels prefetch ahead but never read past the end; no slack is given here on
        // purpose.
        bytes.resize(matrix.bytes() + 64);
        void* start = bytes.data();
        std::size_t space = bytes.size();
        matrix.data = static_cast<std::byte*>(std::align(64, matrix.bytes(), start, space));
        std::vector<float> scratch(static_cast<std::size_t>(matrix.groups()) * kGroup);
        (void)pack_tiles(source, matrix, 0, matrix.tiles(), scratch);
    }
    OwnedMatrix(const OwnedMatrix&) = delete;
    OwnedMatrix& operator=(const OwnedMatrix&) = delete;
    ~OwnedMatrix() = default;

    /// The matrix as float32, [rows, cols].
    [[nodiscard]] std::vector<float> values() const {
        std::vector<float> all(static_cast<std::size_t>(matrix.rows) *
                               static_cast<std::size_t>(matrix.cols));
        for (int r = 0; r < matrix.rows; ++r) {
            unpack_row(matrix, r,
                       std::span(all).subspan(static_cast<std::size_t>(r * matrix.cols),
                                              static_cast<std::size_t>(matrix.cols)));
        }
        return all;
    }
};

/// All float16 numbers that are finite: zeros of both signs, subnormal ones, up to 65504. 62 x 1024
/// of them.
inline std::vector<std::uint16_t> finite_halves() {
    std::vector<std::uint16_t> all;
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        if ((bits & 0x7C00U) != 0x7C00U) all.push_back(static_cast<std::uint16_t>(bits));
    }
    return all;
}

inline bool equal_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace paceline::testing
