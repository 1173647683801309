// Synthetic weights: the shapes that describe them, what a device fills, and a backend that runs on
// them.
#include "model/kernels/cuda/random.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "model/cuda/weight_uploader.hpp"
#include "model/kernels/cuda/gemm/gemm_records.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/synthetic/synthetic_rows.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/device_arrays.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using cuda::WeightType;
using cuda::test::OnDevice;

std::string shape_file(const std::string& name) {
    return source_tree() + "/configs/shapes/" + name + ".toml";
}

/// A shape of its own; the file is gone with it.
class OwnShape {
public:
    explicit OwnShape(const std::string& text)
        : path_{(std::filesystem::temp_directory_path() /
                 ("paceline-shape-" + std::to_string(::getpid()) + ".toml"))
                    .string()} {
        std::ofstream{path_} << text;
    }
    OwnShape(const OwnShape&) = delete;
    OwnShape& operator=(const OwnShape&) = delete;
    ~OwnShape() { std::remove(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

TEST_CASE("the shapes of the bench have the sizes of the models they are named after") {
    const std::pair<const char*, double> billions[] = {{"smollm2-135m", 0.1345},
                                                       {"llama-1b", 1.2358},
                                                       {"llama-8b", 8.0303},
                                                       {"llama-70b", 70.554}};
    for (const auto& [name, wanted] : billions) {
        CAPTURE(name);
        const Result<ModelFile> file = open_random_model(shape_file(name));
        REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string{} : file.error().what));
        const ModelFile& model = file.value();
        double count = static_cast<double>(model.embedding().rows * model.embedding().cols);
        if (!model.config().tied_embeddings) count *= 2;
        for (int l = 0; l < model.config().layers; ++l) {
            const LayerTensors& layer = model.layer(l);
            for (const TensorView* tensor : {&layer.q, &layer.k, &layer.v, &layer.attn_out,
                                             &layer.gate, &layer.up, &layer.down})
                count += static_cast<double>(tensor->rows * tensor->cols);
        }
        CHECK(count / 1e9 == doctest::Approx(wanted).epsilon(0.001));
    }
}

TEST_CASE("a mistake in a shape is told by file, key and value") {
    const std::pair<const char*, const char*> mistakes[] = {
        {"layers = 2\n", "is missing"},
        {"layers = 0\n", "layers = 0"},
        {"layers 2\n", "key = value"},
        {"layers = 2\ndim = 64\nheads = 4\nffn_dim = 96\nvocab_size = 256\nwidth = 3\n", "width"},
        {"layers = 2\ndim = 64\nheads = 4\nffn_dim = 96\nvocab_size = 256\ntype = \"q2\"\n", "q2"},
        {"layers = 2\ndim = 64\nheads = 4\nkv_heads = 3\nffn_dim = 96\nvocab_size = 256\n",
         "kv_heads = 3, must divide heads = 4"},
        {"layers = 2\ndim = 64\nheads = 64\nffn_dim = 96\nvocab_size = 256\n", "head_dim = 1 "},
        {"layers = 2\nlayers = 3\n", "layers is there twice"},
        {"layer = 2\n", "layers is missing; layer = 2 is not a key"}};
    for (const auto& [text, said] : mistakes) {
        const OwnShape shape{text};
        const Result<ModelFile> file = open_random_model(shape.path());
        REQUIRE_FALSE(file.ok());
        CHECK(file.error().code == Errc::BadFile);
        CHECK(file.error().what.find(said) != std::string::npos);
        CHECK(file.error().what.find(shape.path()) != std::string::npos);
    }
}

/// Types whose numbers launch_random() generates.
constexpr WeightType kTypes[] = {WeightType::F32, WeightType::BF16, WeightType::Int8,
                                 WeightType::Q4, WeightType::Q4Sym};

/// What launch_random() fills a matrix with, its bytes.
std::vector<std::byte> filled(WeightType type, int outputs, int inputs, std::uint64_t seed) {
    cuda::DeviceMatrix matrix;
    matrix.type = type;
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    matrix.stride = (inputs + 31) / 32 * 32;
    const std::size_t bytes =
        cuda::is_row_major(type)
            ? static_cast<std::size_t>(outputs * matrix.stride) * cuda::input_bytes(type)
            : static_cast<std::size_t>(matrix.tiles()) * cuda::tile_bytes(type, inputs);
    const OnDevice<std::byte> memory{std::vector<std::byte>(bytes, std::byte{0xFF})};
    matrix.values = memory.data();
    cuda::Stream stream;
    cuda::launch_random(stream, matrix, seed);
    stream.finish();
    return memory.take();
}

/// Row `o` of it, as the embedding kernel reads it.
std::vector<float> row_of(
    const std::vector<std::byte>& bytes, WeightType type, int outputs, int inputs, int o) {
    const OnDevice<std::byte> memory{bytes};
    cuda::DeviceMatrix matrix;
    matrix.type = type;
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    matrix.stride = (inputs + 31) / 32 * 32;
    matrix.values = memory.data();
    const OnDevice<std::int32_t> token{{o}};
    const OnDevice<std::int32_t> rows{{1}};
    const OnDevice<float> hidden{std::vector<float>(static_cast<std::size_t>(inputs))};
    cuda::Stream stream;
    cuda::launch_embed(stream, {matrix, token.data(), rows.data(), hidden.data()}, 1);
    stream.finish();
    return hidden.take();
}

TEST_CASE("synthetic weights of every type have mean 0 and variance 1 / inputs, and come again") {
    constexpr int kOutputs = 20;
    constexpr int kInputs = 1000;
    for (const WeightType type : kTypes) {
        if (type == WeightType::Q4Sym) continue;  // its mean is half a step below 0
        CAPTURE(name(type));
        const std::vector<std::byte> bytes = filled(type, kOutputs, kInputs, 7);
        CHECK(bytes == filled(type, kOutputs, kInputs, 7));
        CHECK(bytes != filled(type, kOutputs, kInputs, 8));
        double sum = 0.0;
        double squares = 0.0;
        for (const int o : {0, 7, 8, 15, 19}) {
            for (const float value : row_of(bytes, type, kOutputs, kInputs, o)) {
                REQUIRE(std::isfinite(value));
                sum += static_cast<double>(value);
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
        }
        CHECK(std::abs(sum) / 5000 < 0.1 / std::sqrt(1000.0));
        CHECK(squares / 5 == doctest::Approx(1.0).epsilon(0.08));
    }
}

/// A tensor with the rows that the host makes up for `seed`, stored as `type` is; owns its bytes.
struct OnHost {
    OnHost(WeightType type, std::uint64_t seed, int rows, int columns) {
        view.name = "on the host";
        view.type = stored_type(type);
        view.rows = rows;
        view.cols = columns;
        const TypeTraits of = traits(view.type);
        const std::size_t row_bytes =
            static_cast<std::size_t>(columns) / of.block_elements * of.block_bytes;
        bytes.resize(static_cast<std::size_t>(rows) * row_bytes);
        for (int r = 0; r < rows; ++r)
            random_row(
                view.type, seed, r, columns,
                std::span{bytes}.subspan(static_cast<std::size_t>(r) * row_bytes, row_bytes));
        view.data = bytes.data();
        view.bytes = bytes.size();
    }
    TensorView view;
    std::vector<std::byte> bytes;
};

/// Whether the device fills a matrix as a loader does from tensors that the host made.
void check_against_host(const WeightUploader& feed, const std::vector<cuda::RandomPart>& parts) {
    std::vector<std::byte> wanted(feed.bytes());
    CHECK(feed.fill(0, feed.pieces(), wanted.data()).empty());
    const OnDevice<std::byte> memory{std::vector<std::byte>(feed.bytes(), std::byte{0xFF})};
    cuda::Stream stream;
    cuda::launch_random(stream, feed.at(memory.data()), parts);
    stream.finish();
    CHECK(memory.take() == wanted);
}

TEST_CASE("a device generates the numbers of the host, wherever its layout puts them") {
    for (const WeightType type : kTypes) {
        CAPTURE(name(type));
        // Parts that end in the middle of a tile; half a step of inputs at the end.
        const OnHost q{type, 1, 40, 96};
        const OnHost k{type, 2, 9, 96};
        const OnHost v{type, 3, 10, 96};
        check_against_host(WeightUploader{type, {q.view, k.view, v.view}},
                           {{1, 40}, {2, 9}, {3, 10}});
        const OnHost gate{type, 4, 21, 96};
        const OnHost up{type, 5, 21, 96};
        check_against_host(WeightUploader::paired(type, gate.view, up.view), {{4, 21}, {5, 21}});
    }
}

TEST_CASE("padding of synthetic weights is zero") {
    constexpr int kInputs = 40;  // of a stride of 64
    const std::vector<std::byte> bytes = filled(WeightType::BF16, 3, kInputs, 7);
    for (std::size_t row = 0; row < 3; ++row) {
        for (std::size_t at = 2 * kInputs; at < 128; ++at)
            CHECK(bytes[128 * row + at] == std::byte{0});
    }
}

TEST_CASE("a backend runs on weights that are synthetic, the same for the same seed") {
    const Result<ModelFile> file = open_random_model(shape_file("tiny"));
    REQUIRE(file.ok());
    const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
    for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::Int8, Dtype::Q4}) {
        CAPTURE(name(dtype));
        const auto logits = [&](std::uint64_t seed) {
            const auto backend = make_cuda(file.value(), {.dtype = dtype, .random = seed});
            return sequence_logits(*backend, tokens, 5);
        };
        const std::vector<float> first = logits(1);
        CHECK(std::all_of(first.begin(), first.end(), [](float x) { return std::isfinite(x); }));
        CHECK(first == logits(1));
        CHECK(first != logits(2));
    }
    const Result<std::unique_ptr<CudaBackend>> refused =
        make_cuda_backend(file.value(), {.kv_slots = 32});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::BadFile);
}

TEST_CASE("synthetic weights are the same on a CPU and on a device, whatever their type") {
    const Result<ModelFile> file = open_random_model(shape_file("tiny"));
    REQUIRE(file.ok());
    const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
    for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::Int8, Dtype::Q4}) {
        CAPTURE(name(dtype));
        const auto device = make_cuda(file.value(), {.dtype = dtype, .random = 1});
        const auto host =
            make_backend(file.value(), {.dtype = dtype, .kv = KvType::BF16, .random = 1});
        const Deviation off =
            deviation(sequence_logits(*device, tokens, 5), sequence_logits(*host, tokens, 5), 256);
        // But for float32 a row is rounded on its way: to bf16 on a device, to int8 on a CPU.
        CHECK(off.relative < (dtype == Dtype::F32 ? 1e-5 : 0.04));
        const auto other = make_backend(file.value(), {.dtype = dtype, .random = 2});
        CHECK(
            deviation(sequence_logits(*device, tokens, 5), sequence_logits(*other, tokens, 5), 256)
                .relative > 0.3);
    }
}

TEST_CASE("synthetic blocks are the same on a CPU and on a device, also in mixes of types") {
    const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
    for (const char* type : {"q4_k_m", "q5_k_m", "q2_k", "q3_k", "q5_1", "iq4_xs", "mxfp4"}) {
        CAPTURE(type);
        const OwnShape shape{fmt::format(
            "layers = 3\ndim = 256\nheads = 4\nkv_heads = 2\nffn_dim = 512\nvocab_size = 256\n"
            "type = \"{}\"\n",
            type)};
        const Result<ModelFile> file = open_random_model(shape.path());
        REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().what));
        const auto device = make_cuda(file.value(), {.random = 1});
        const auto host = make_backend(file.value(), {.kv = KvType::BF16, .random = 1});
        // Activations are rounded to bf16 on a device, to int8 on a CPU.
        CHECK(deviation(sequence_logits(*device, tokens, 5), sequence_logits(*host, tokens, 5), 256)
                  .relative < 0.08);
        const auto other = make_cuda(file.value(), {.random = 2});
        CHECK(deviation(sequence_logits(*other, tokens, 5), sequence_logits(*host, tokens, 5), 256)
                  .relative > 0.3);
    }
}

TEST_CASE("the time of a batch is told, and its replays leave the backend as it was") {
    const Result<ModelFile> file = open_random_model(shape_file("tiny"));
    REQUIRE(file.ok());
    const auto backend = make_cuda(file.value(), {.random = 1});
    const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
    const std::vector<float> before = sequence_logits(*backend, tokens, 5);
    const std::vector<KvSlot> slots = home_slots(64);
    std::vector<Row> rows;
    for (Position p = 20; p < 23; ++p) rows.push_back(sequence_row(*backend, 9, p, slots));
    CHECK(backend->batch_seconds(rows, 2) > 0.0);
    CHECK(sequence_logits(*backend, tokens, 5) == before);
}

}  // namespace
}  // namespace paceline
