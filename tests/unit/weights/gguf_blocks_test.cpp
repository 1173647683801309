// Every block type beside the numbers that the gguf package reads in the same bytes
// (tests/fixtures/blocks), and the groups that backends take over from them.
#include "model/weights/gguf/gguf_blocks.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "model/weights/gguf/gguf_groups.hpp"
#include "model/weights/tensor.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline {
namespace {

constexpr StoredType kBlockTypes[] = {
    StoredType::Q8_0,   StoredType::Q4_0,   StoredType::Q4_1, StoredType::Q5_0, StoredType::Q5_1,
    StoredType::Q2_K,   StoredType::Q3_K,   StoredType::Q4_K, StoredType::Q5_K, StoredType::Q6_K,
    StoredType::IQ4_NL, StoredType::IQ4_XS, StoredType::MXFP4};

std::vector<char> fixture(const std::string& name) {
    std::ifstream in(testing::fixtures() + "/blocks/" + name, std::ios::binary);
    REQUIRE(in.good());
    return {std::istreambuf_iterator<char>(in), {}};
}

struct Blocks {
    std::vector<char> bytes;
    std::vector<float> want;
    TensorView tensor;
};

Blocks blocks_of(StoredType type) {
    const std::string name = traits(type).name;
    Blocks blocks{fixture(name + ".blocks"), {}, {}};
    const std::vector<char> values = fixture(name + ".f32");
    blocks.want.resize(values.size() / sizeof(float));
    std::memcpy(blocks.want.data(), values.data(), values.size());
    blocks.tensor = {.name = name,
                     .type = type,
                     .rows = 1,
                     .cols = std::ssize(blocks.want),
                     .data = reinterpret_cast<const std::byte*>(blocks.bytes.data()),
                     .bytes = blocks.bytes.size()};
    return blocks;
}

bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

TEST_CASE("blocks of every type give the bits that the gguf package gives, extreme scales too") {
    for (const StoredType type : kBlockTypes) {
        const Blocks blocks = blocks_of(type);
        CAPTURE(blocks.tensor.name);
        const TypeTraits shape = traits(type);
        REQUIRE(blocks.want.size() / shape.block_elements * shape.block_bytes ==
                blocks.bytes.size());
        std::vector<float> got(blocks.want.size());
        dequantize_row(blocks.tensor, 0, got);
        for (std::size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            REQUIRE(same_bits(got[i], blocks.want[i]));
        }
    }
}

TEST_CASE("groups that are taken over as int8 are the file's numbers exactly") {
    for (const StoredType type : kBlockTypes) {
        if (!has_int8_form(type)) continue;
        const Blocks blocks = blocks_of(type);
        CAPTURE(blocks.tensor.name);
        int taken = 0;
        for (int group = 0; group < static_cast<int>(blocks.want.size()) / kQuantGroup; ++group) {
            const auto stored = stored_int8_group(blocks.tensor, 0, group);
            if (!stored) continue;
            ++taken;
            for (int k = 0; k < kQuantGroup; ++k) {
                const float got = half_to_float(stored->scale) * static_cast<float>(stored->q[k]);
                REQUIRE(got == blocks.want[static_cast<std::size_t>(group * kQuantGroup + k)]);
            }
        }
        // MXFP4's random powers of two are mostly outside float16.
        CHECK(taken > (type == StoredType::MXFP4 ? 5 : 127));
    }
}

TEST_CASE("a block whose scale is not finite stays so in a group") {
    for (const StoredType type : {StoredType::Q5_0, StoredType::IQ4_NL}) {
        Blocks blocks = blocks_of(type);
        const std::uint16_t infinity = 0x7C00;
        std::memcpy(blocks.bytes.data(), &infinity, sizeof infinity);
        const auto stored = stored_int8_group(blocks.tensor, 0, 0);
        REQUIRE(stored.has_value());
        CHECK_FALSE(std::isfinite(half_to_float(stored->scale)));
    }
}

}  // namespace paceline
