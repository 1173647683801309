#include <cmath>

#include <doctest/doctest.h>

#include "model/kernels/cpu/kernel_table.hpp"
#include "model/reference/rms_norm.hpp"
#include "model/reference/swiglu.hpp"
#include "tests/unit/kernels/kernel_fixture.hpp"

namespace paceline {
namespace {

using testing::random_floats;

TEST_CASE("rms norm and silu agree with their references at every length") {
    std::mt19937 rng{21};
    for (const Isa isa : testing::runnable_isas()) {
        const KernelTable& k = kernels(isa);
        for (const int n : {1, 7, 8, 15, 16, 17, 31, 64, 100, 576}) {
            CAPTURE(name(isa));
            CAPTURE(n);
            const auto size = static_cast<std::size_t>(n);
            const std::vector<float> x = random_floats(rng, size, 3.0f);
            const std::vector<float> w = random_floats(rng, size);
            std::vector<float> got(size);
            std::vector<float> want(size);
            k.scale_by(x.data(), w.data(), k.rms_scale(x.data(), n, 1e-5f), n, got.data());
            reference::rms_norm(x, w, 1e-5f, want);
            for (std::size_t i = 0; i < size; ++i)
                CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
            k.silu_mul(x.data(), w.data(), n, got.data());
            reference::swiglu(x, w, want);
            for (std::size_t i = 0; i < size; ++i)
                CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
        }
    }
}

TEST_CASE("silu stays finite for huge inputs") {
    const float gate[] = {-1e30f, -200.0f, -88.0f, 0.0f, 88.0f, 200.0f, 1e30f};
    const float up[] = {1, 1, 1, 1, 1, 1, 1};
    for (const Isa isa : testing::runnable_isas()) {
        float out[7];
        kernels(isa).silu_mul(gate, up, 7, out);
        for (const float value : out) CHECK(std::isfinite(value));
        CHECK(out[3] == 0.0f);
        CHECK(out[5] == doctest::Approx(200.0f));
    }
}

TEST_CASE("an int8 activation keeps scale, sum and quants of its group of 32") {
    std::mt19937 rng{22};
    const int cols = 75;
    const std::vector<float> x = random_floats(rng, 3 * cols);
    for (const Isa isa : testing::runnable_isas()) {
        Activations memory{3, cols};
        const PackedRows packed = memory.shaped(ActivationType::Int8, 3, cols);
        for (int r = 0; r < 3; ++r)
            kernels(isa).pack_row(x.data() + r * cols, {0, cols}, packed, r);
        for (int r = 0; r < 3; ++r) {
            const Panel panel = panel_of(r, 3);
            const int lane = r - panel.first_row;
            for (int g = 0; g < packed.groups(); ++g) {
                float largest = 0;
                for (int c = 32 * g; c < std::min(cols, 32 * g + 32); ++c)
                    largest =
                        std::max(largest, std::fabs(x[static_cast<std::size_t>(r * cols + c)]));
                const float scale = packed.scales(panel)[g * panel.width + lane];
                CHECK(scale == doctest::Approx(largest / 127.0f));
                int total = 0;
                int half = 0;
                for (int k = 0; k < 32; ++k) {
                    const int q =
                        packed.int8(panel)[((32 * g + k) / 4 * panel.width + lane) * 4 + k % 4];
                    total += q;
                    if (k < 16) half += q;
                    const int c = 32 * g + k;
                    const float value = c < cols ? x[static_cast<std::size_t>(r * cols + c)] : 0.0f;
                    CHECK(std::fabs(static_cast<float>(q) * scale - value) <= 0.5001f * scale);
                }
                CHECK(packed.counts(panel)[g * panel.width + lane] == total);
                CHECK(packed.halves(panel)[g * panel.width + lane] == half);
                CHECK(packed.sums(panel)[g * panel.width + lane] ==
                      doctest::Approx(scale * static_cast<float>(total)));
            }
        }
    }
}

TEST_CASE("a row packed in pieces of columns has the bits of the row packed at once") {
    std::mt19937 rng{23};
    const int cols = 200;
    const std::vector<float> x = random_floats(rng, 5 * cols);
    for (const Isa isa : testing::runnable_isas()) {
        for (const ActivationType type :
             {ActivationType::F32, ActivationType::BF16, ActivationType::Int8}) {
            Activations whole{5, cols};
            Activations pieces{5, cols};
            const PackedRows a = whole.shaped(type, 5, cols);
            const PackedRows b = pieces.shaped(type, 5, cols);
            for (int r = 0; r < 5; ++r) {
                const float* row = x.data() + r * cols;
                kernels(isa).pack_row(row, {0, cols}, a, r);
                kernels(isa).pack_row(row, {128, cols}, b, r);
                kernels(isa).pack_row(row, {0, 64}, b, r);
                kernels(isa).pack_row(row, {64, 128}, b, r);
            }
            const Panel first = panel_of(0, 5);
            const auto numbers = static_cast<std::size_t>(5 * a.groups() * kGroup);
            const std::size_t bytes = numbers * (type == ActivationType::F32    ? 4
                                                 : type == ActivationType::BF16 ? 2
                                                                                : 1);
            CHECK(std::memcmp(a.f32(first), b.f32(first), bytes) == 0);
            if (type != ActivationType::Int8) continue;
            CHECK(std::memcmp(a.sums(first), b.sums(first), numbers / kGroup * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("a NaN in a row shows in the packed row and not in its neighbours") {
    std::vector<float> x(64, 1.0f);
    x[5] = NAN;
    for (const Isa isa : testing::runnable_isas()) {
        Activations memory{2, 32};
        const PackedRows packed = memory.shaped(ActivationType::BF16, 2, 32);
        for (int r = 0; r < 2; ++r) kernels(isa).pack_row(x.data() + r * 32, {0, 32}, packed, r);
        const bool in_panels = isa != Isa::Amx;
        const std::uint16_t* bits = packed.bf16(panel_of(0, 2)) + 5 % 2;
        const std::uint16_t* first = in_panels ? bits + (5 / 2) * 4 : packed.bf16_row(0) + 5;
        const std::uint16_t* second = in_panels ? bits + (5 / 2) * 4 + 2 : packed.bf16_row(1) + 5;
        CHECK(std::isnan(bfloat_to_float(*first)));
        CHECK(bfloat_to_float(*second) == 1.0f);
    }
}

}  // namespace
}  // namespace paceline
