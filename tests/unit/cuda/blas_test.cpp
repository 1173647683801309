// cuBLAS, which is another program's arithmetic, against our own products: a reference for them on
// matrices of a real model's shape, and, with the finish after it, what `exact = off` computes.
#include "model/kernels/cuda/blas.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "model/kernels/cuda/gemm/gemm_blas.hpp"
#include "model/kernels/cuda/random.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

using test::bf16_of;
using test::OnDevice;
using test::random_floats;

constexpr int kProcessors = 4;  // where it makes no difference
// Numbers of size one, summed in another order: thousands of roundings of floats.
constexpr double kTolerance = 1e-3;
constexpr double kBf16Tolerance = 2e-2;  // one step of bf16 between 2 and 4

#ifdef PACELINE_EMULATED_DEVICE
constexpr int kRowCounts[] = {1, 8, 70};
constexpr std::array kShapes{std::pair{48, 128}, std::pair{40, 320}};
#else
// Outputs and inputs of an 8B model: q k v, attention out, gate and up, down.
constexpr int kRowCounts[] = {1, 8, 64, 512};
constexpr std::array kShapes{std::pair{6144, 4096}, std::pair{4096, 4096}, std::pair{28672, 4096},
                             std::pair{4096, 14336}};
#endif

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

/// Says so, and how it came, where there is no cuBLAS.
bool missing() {
    const std::string problem = blas_problem();
    if (problem.empty()) return false;
    MESSAGE("skipped: no cuBLAS: ", problem);
    return true;
}

/// What cuBLAS works in, for as long as a test lasts.
struct Library {
    OnDevice<std::byte> workspace{std::vector<std::byte>(kBlasWorkspaceBytes)};
    Stream stream;
    Blas blas{stream, workspace.data()};
};

/// bf16 numbers of variance 1 / inputs, so that products are of size one.
struct Weights {
    OnDevice<std::uint16_t> memory;
    DeviceMatrix matrix;

    Weights(int outputs, int inputs, bool paired)
        : memory{std::vector<std::uint16_t>(size_of(paired ? 2 * outputs : outputs) *
                                            size_of(padded_inputs(inputs)))} {
        matrix.values = memory.data();
        matrix.outputs = outputs;
        matrix.inputs = inputs;
        matrix.stride = padded_inputs(inputs);
        matrix.paired = paired;
        if (paired) matrix.second = memory.data() + size_of(outputs) * size_of(matrix.stride);
        Stream stream;
        launch_random(stream, matrix, 1);
        stream.finish();
    }
};

/// Rows of size one in bf16, with zeros after the last input.
OnDevice<std::uint16_t> make_rows(int rows, int inputs) {
    std::vector<float> values = random_floats(size_of(rows) * size_of(padded_inputs(inputs)), 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i % size_of(padded_inputs(inputs)) >= size_of(inputs)) values[i] = 0.0f;
    }
    return OnDevice<std::uint16_t>{bf16_of(values)};
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (!(difference <= worst)) worst = difference;  // NaN stays
    }
    return worst;
}

std::vector<float> floats_of(const std::vector<std::uint16_t>& bits) {
    std::vector<float> values;
    values.reserve(bits.size());
    for (const std::uint16_t one : bits) values.push_back(bfloat_to_float(one));
    return values;
}

/// What a product with everything after it wrote.
struct Written {
    std::vector<float> out, next, squares;
};

/// A product and its finish by either of the two, on more rows than are there.
class Finished {
public:
    static constexpr int kThere = 5;
    static constexpr int kRows = 7;  // of the launch
    static constexpr int kDim = 96;  // of inputs and of a residual
    static constexpr int kWidth = 128;

    Finished(FinishKind kind, int outputs) : weights_{outputs, kDim, kind == FinishKind::Gated} {
        args_.weights = weights_.matrix;
        args_.x = x_.data();
        args_.x_stride = padded_inputs(kDim);
        args_.rows = count_.data();
        args_.finish.kind = kind;
        args_.finish.out_stride = kWidth;
        args_.finish.row_index = places_.data();
        args_.finish.next.weights = norm_.data();
        args_.finish.next.stride = kWidth;
        if (kind == FinishKind::Residual || kind == FinishKind::Input) return;
        args_.finish.norm = {old_squares_.data(), 8, kDim, 1e-5f, nullptr};
    }

    Written run(bool by_blas) {
        const OnDevice<float> out{std::vector<float>(size_of(kRows * kWidth), 3.0f)};
        const OnDevice<std::uint16_t> next{std::vector<std::uint16_t>(size_of(kRows * kWidth))};
        const OnDevice<float> squares{std::vector<float>(size_of(kRows * kWidth / 16), 0.0f)};
        const OnDevice<float> scratch{
            std::vector<float>(size_of(kRows * blas_floats(args_.weights)))};
        args_.finish.out = out.data();
        args_.finish.next.x = next.data();
        args_.finish.next.squares = squares.data();
        if (by_blas) {
            launch_gemm_blas(library_.stream, library_.blas, args_, kRows, scratch.data());
        } else {
            launch_gemm(library_.stream, args_, {kRows, kProcessors});
        }
        library_.stream.finish();
        Written written{out.take(), floats_of(next.take()), squares.take()};
        // By cuBLAS a product that is stored has all rows of the launch: the others are not read.
        if (args_.finish.kind == FinishKind::Store) written.out.resize(size_of(kThere * kWidth));
        return written;
    }

private:
    Library library_;
    Weights weights_;
    OnDevice<std::uint16_t> x_ = make_rows(kRows, kDim);
    OnDevice<std::int32_t> count_{{kThere}};
    OnDevice<std::int32_t> places_{{2, 0, 1, 6, 4, 3, 5}};
    OnDevice<float> norm_{random_floats(kWidth, 3)};
    OnDevice<float> old_squares_{std::vector<float>(size_of(kRows * 8), 16.0f)};
    GemmArgs args_;
};

}  // namespace

TEST_CASE("our products are cuBLAS's within rounding, for one row and for a prefill's") {
    if (missing()) return;
    Library library;
    for (const auto& [outputs, inputs] : kShapes) {
        const Weights weights{outputs, inputs, false};
        for (const int rows : kRowCounts) {
            CAPTURE(outputs);
            CAPTURE(inputs);
            CAPTURE(rows);
            const OnDevice<std::uint16_t> x = make_rows(rows, inputs);
            const OnDevice<std::int32_t> count{{rows}};
            const std::vector<float> empty(size_of(rows) * size_of(outputs), std::nanf(""));
            const OnDevice<float> own{empty};
            const OnDevice<float> peer{empty};
            GemmArgs args;
            args.weights = weights.matrix;
            args.x = x.data();
            args.x_stride = padded_inputs(inputs);
            args.rows = count.data();
            args.finish.out = own.data();
            args.finish.out_stride = outputs;
            launch_gemm(library.stream, args, {rows, use_device(0).processors});
            args.finish.out = peer.data();
            launch_gemm_blas(library.stream, library.blas, args, rows, nullptr);
            library.stream.finish();
            CHECK(largest_difference(own.take(), peer.take()) < kTolerance);
        }
    }
}

TEST_CASE("what is finished after cuBLAS's product is what is fused after ours") {
    if (missing()) return;
    for (const auto& [kind, outputs] :
         {std::pair{FinishKind::Store, 40}, std::pair{FinishKind::Residual, 96},
          std::pair{FinishKind::Input, 88}, std::pair{FinishKind::Gated, 52}}) {
        CAPTURE(static_cast<int>(kind));
        Finished product{kind, outputs};
        const Written own = product.run(false);
        const Written peer = product.run(true);
        CHECK(largest_difference(own.next, peer.next) < kBf16Tolerance);
        CHECK(largest_difference(own.squares, peer.squares) < 16 * kTolerance);
        if (kind == FinishKind::Store) {
            // Columns after the last output are unused.
            for (std::size_t i = 0; i < own.out.size(); ++i)
                CHECK(static_cast<double>(peer.out[i]) ==
                      doctest::Approx(static_cast<double>(own.out[i])).epsilon(kTolerance));
        } else {
            CHECK(largest_difference(own.out, peer.out) < kTolerance);
        }
    }
}

TEST_CASE("gates and ups that lie apart are multiplied like those beside each other") {
    if (missing()) return;
    constexpr int kOutputs = 24;
    constexpr int kInputs = 64;
    constexpr int kRows = 3;
    Library library;
    const Weights beside{kOutputs, kInputs, true};
    const std::vector<std::uint16_t> both = beside.memory.take();
    const auto half = both.begin() + kOutputs * kInputs;
    const OnDevice<std::uint16_t> gate{std::vector<std::uint16_t>(both.begin(), half)};
    const OnDevice<std::uint16_t> gap{std::vector<std::uint16_t>(64)};
    const OnDevice<std::uint16_t> up{std::vector<std::uint16_t>(half, both.end())};
    DeviceMatrix apart = beside.matrix;
    apart.values = gate.data();
    apart.second = up.data();
    const OnDevice<std::uint16_t> x = make_rows(kRows, kInputs);
    const OnDevice<std::int32_t> count{{kRows}};
    const OnDevice<float> scratch{std::vector<float>(kRows * 2 * kOutputs)};
    std::vector<std::vector<float>> results;
    for (const DeviceMatrix& matrix : {beside.matrix, apart}) {
        const OnDevice<std::uint16_t> next{std::vector<std::uint16_t>(kRows * 64)};
        GemmArgs args;
        args.weights = matrix;
        args.x = x.data();
        args.x_stride = kInputs;
        args.rows = count.data();
        args.finish.kind = FinishKind::Gated;
        args.finish.next.x = next.data();
        args.finish.next.stride = 64;
        launch_gemm_blas(library.stream, library.blas, args, kRows, scratch.data());
        library.stream.finish();
        results.push_back(floats_of(next.take()));
    }
    CHECK(largest_difference(results[0], results[1]) < kBf16Tolerance);
}

TEST_CASE("a product by cuBLAS can be recorded once it has run") {
    if (missing()) return;
    constexpr int kRows = 4;
    constexpr int kOutputs = 24;
    constexpr int kInputs = 64;
    Library library;
    const std::vector<float> x = random_floats(kRows * kInputs, 4);
    const std::vector<float> w = random_floats(kOutputs * kInputs, 5, 0.125f);
    const OnDevice<std::uint16_t> device_x{bf16_of(x)};
    const OnDevice<std::uint16_t> device_w{bf16_of(w)};
    const OnDevice<float> y{std::vector<float>(kRows * kOutputs)};
    const BlasArgs product{device_w.data(), kInputs, device_x.data(), kInputs, y.data(),
                           kOutputs,        kRows,   kOutputs,        kInputs};
    std::vector<float> expected;
    for (int row = 0; row < kRows; ++row) {
        for (int o = 0; o < kOutputs; ++o) {
            double sum = 0.0;
            for (int i = 0; i < kInputs; ++i)
                sum += static_cast<double>(x[size_of(row * kInputs + i)]) *
                       static_cast<double>(w[size_of(o * kInputs + i)]);
            expected.push_back(static_cast<float>(sum));
        }
    }
    library.blas.multiply(product);
    const Graph graph = library.stream.record([&] { library.blas.multiply(product); });
    library.stream.fill(y.data(), 0xFF, expected.size() * sizeof(float));
    graph.launch(library.stream);
    library.stream.finish();
    CHECK(largest_difference(y.take(), expected) < kBf16Tolerance);
}

#ifdef PACELINE_EMULATED_DEVICE
TEST_CASE("the order in which the threads of a finish run changes nothing") {
    Finished product{FinishKind::Gated, 52};
    const std::vector<float> usual = product.run(true).next;
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope{order};
        CHECK(product.run(true).next == usual);
    }
}

TEST_CASE("without the library there is no Blas, and its words say why") {
    const OnDevice<std::byte> workspace{std::vector<std::byte>(kBlasWorkspaceBytes)};
    emulated::set_blas_problem("libcublas.so.13 is not there");
    Stream stream;
    CHECK(contains(error_of([&] {
                       const Blas blas{stream, workspace.data()};
                   }),
                   "libcublas.so.13 is not there"));
    emulated::set_blas_problem("");
    CHECK(error_of([&] { const Blas blas{stream, workspace.data()}; }).empty());
}
#endif

}  // namespace paceline::cuda
