// Blocks of a file on a device: for every type the numbers that the gguf package reads
// (tests/fixtures/blocks), in 1.05 times the file's memory at most.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "model/cuda/weight_uploader.hpp"
#include "model/kernels/cuda/rows.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/device_arrays.hpp"

namespace paceline {
namespace {

using cuda::test::OnDevice;

constexpr StoredType kBlockTypes[] = {
    StoredType::Q8_0,   StoredType::Q4_0,   StoredType::Q4_1, StoredType::Q5_0, StoredType::Q5_1,
    StoredType::Q2_K,   StoredType::Q3_K,   StoredType::Q4_K, StoredType::Q5_K, StoredType::Q6_K,
    StoredType::IQ4_NL, StoredType::IQ4_XS, StoredType::MXFP4};

std::vector<char> fixture(const std::string& name) {
    std::ifstream in(testing::fixtures() + "/blocks/" + name, std::ios::binary);
    REQUIRE(in.good());
    return {std::istreambuf_iterator<char>(in), {}};
}

/// The fixture's blocks as a matrix of rows of 256 numbers.
struct Blocks {
    explicit Blocks(StoredType type) : bytes{fixture(std::string{traits(type).name} + ".blocks")} {
        const std::vector<char> values = fixture(std::string{traits(type).name} + ".f32");
        want.resize(values.size() / sizeof(float));
        std::memcpy(want.data(), values.data(), values.size());
        tensor = {.name = traits(type).name,
                  .type = type,
                  .rows = std::ssize(want) / kColumns,
                  .cols = kColumns,
                  .data = reinterpret_cast<const std::byte*>(bytes.data()),
                  .bytes = bytes.size()};
    }
    static constexpr std::int64_t kColumns = 256;
    std::vector<char> bytes;
    std::vector<float> want;
    TensorView tensor;
};

/// Row `o` of a matrix on the device, as the embedding kernel reads it.
std::vector<float> row_on_device(const cuda::DeviceMatrix& matrix, int o) {
    const OnDevice<std::int32_t> token{{o}};
    const OnDevice<std::int32_t> rows{{1}};
    const OnDevice<float> hidden{std::vector<float>(static_cast<std::size_t>(matrix.inputs))};
    cuda::Stream stream;
    cuda::launch_embed(stream, {matrix, token.data(), rows.data(), hidden.data()}, 1);
    stream.finish();
    return hidden.take();
}

}  // namespace

TEST_CASE("blocks of every type have the file's numbers on a device, bit for bit") {
    for (const StoredType type : kBlockTypes) {
        const Blocks blocks{type};
        CAPTURE(blocks.tensor.name);
        REQUIRE(blocks.tensor.rows >= cuda::kTileOutputs);
        const WeightUploader feed{natural_type(type), {blocks.tensor}};
        std::vector<std::byte> bytes(feed.bytes());
        // The result is ignored: some blocks of the fixture have numbers that are not finite.
        (void)feed.fill(0, feed.pieces(), bytes.data());
        const OnDevice<std::byte> memory{bytes};
        for (int o = 0; o < static_cast<int>(blocks.tensor.rows); ++o) {
            const std::vector<float> got = row_on_device(feed.at(memory.data()), o);
            for (std::size_t i = 0; i < got.size(); ++i) {
                const float want = blocks.want[static_cast<std::size_t>(o) * got.size() + i];
                CAPTURE(i);
                REQUIRE((std::isnan(want) ? std::isnan(got[i]) : got[i] == want));
            }
        }
    }
}

TEST_CASE("blocks take at most 1.05 times the file's memory on a device") {
    for (const StoredType type : kBlockTypes) {
        CAPTURE(traits(type).name);
        const TypeTraits shape = traits(type);
        constexpr int kRows = 64;
        constexpr int kColumns = 4096;
        TensorView tensor{"t", type, kRows, kColumns};
        const auto of_file =
            static_cast<double>(kRows * kColumns / shape.block_elements * shape.block_bytes);
        const WeightUploader feed{natural_type(type), {tensor}};
        CHECK(static_cast<double>(feed.bytes()) <= 1.05 * of_file);
    }
}

TEST_CASE("q, k, v or gate, up of different types keep the types of the file on a device") {
    for (const char* fixture : {"llama-q4_k_m", "qwen3-k-mix"}) {
        CAPTURE(fixture);
        const ModelFile file = testing::open_fixture(fixture);
        std::uint64_t of_file = 0;
        for (const TensorView& tensor : file.tensors()) of_file += tensor.bytes;
        const auto gpu = testing::make_cuda(file, {});
        // One product for all of them would need bfloat16, two bytes a weight.
        CHECK(static_cast<double>(gpu->memory_use().weight_bytes) <
              1.2 * static_cast<double>(of_file));
    }
}

}  // namespace paceline
