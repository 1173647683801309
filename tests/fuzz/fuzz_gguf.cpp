// Fuzzes the GGUF reader: the input is a split byte and two files, or one; and the block types:
// blocks of any bits. Of what is accepted every number can be read.
#include <cmath>
#include <string>
#include <vector>

#include "model/weights/gguf/gguf_groups.hpp"
#include "model/weights/gguf/gguf_shards.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/unit/weights/gguf_builder.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::size_t kModes = 3;
constexpr StoredType kBlockTypes[] = {
    StoredType::Q8_0,   StoredType::Q4_0,   StoredType::Q4_1, StoredType::Q5_0, StoredType::Q5_1,
    StoredType::Q2_K,   StoredType::Q3_K,   StoredType::Q4_K, StoredType::Q5_K, StoredType::Q6_K,
    StoredType::IQ4_NL, StoredType::IQ4_XS, StoredType::MXFP4};
constexpr std::size_t kNumbers = 256;

Bytes shard_of(const GgufBuilder& whole, std::uint16_t index) {
    GgufBuilder shard;
    if (index == 0) shard.keys = whole.keys;
    for (std::size_t t = index; t < whole.tensors.size(); t += 2)
        shard.tensors.push_back(whole.tensors[t]);
    const auto set = [&](const char* name, std::uint16_t value) {
        Bytes raw;
        append(raw, value);
        shard.set(name, 2, std::move(raw));
    };
    set("split.no", index);
    set("split.count", 2);
    shard.set_i32("split.tensors.count", static_cast<std::int32_t>(whole.tensors.size()));
    return shard.bytes();
}

void put(FuzzBytes& input, const Bytes& bytes) {
    for (const std::byte byte : bytes) input.push_back(std::to_integer<std::uint8_t>(byte));
}

void read_files(std::span<const GgufBytes> files) {
    const Result<ModelParts> parts = read_gguf_shards(files);
    if (!parts.ok()) {
        PACE_CHECK(parts.error().code == Errc::BadFile || parts.error().code == Errc::Unsupported,
                   "another error than it promises");
        return;
    }
    for (const TensorView& tensor : parts.value().tensors) {
        std::vector<float> row(static_cast<std::size_t>(tensor.cols));
        for (std::int64_t r = 0; r < tensor.rows; ++r) dequantize_row(tensor, r, row);
    }
}

/// Groups that become int8 without rounding are exact, and not finite where the numbers are not.
void read_blocks(StoredType type, std::span<const std::byte> bytes) {
    const TypeTraits shape = traits(type);
    if (bytes.size() < kNumbers / shape.block_elements * shape.block_bytes) return;
    TensorView tensor{"t",      type,         1,
                      kNumbers, bytes.data(), kNumbers / shape.block_elements * shape.block_bytes};
    std::vector<float> row(kNumbers);
    dequantize_row(tensor, 0, row);
    if (!has_int8_form(type)) return;
    for (int group = 0; group < static_cast<int>(kNumbers) / kQuantGroup; ++group) {
        const std::optional<QuantisedGroup> stored = stored_int8_group(tensor, 0, group);
        if (!stored) continue;
        for (int k = 0; k < kQuantGroup; ++k) {
            const float want = row[static_cast<std::size_t>(group * kQuantGroup + k)];
            const float got = half_to_float(stored->scale) * static_cast<float>(stored->q[k]);
            PACE_CHECK(got == want || std::isnan(want) == std::isnan(got), "int8 is exact");
            PACE_CHECK(std::isfinite(want) || !std::isfinite(got), "what is not finite stays so");
        }
    }
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    const auto mode = static_cast<std::uint8_t>(random.below(kModes));
    FuzzBytes input{mode};
    TinyModel tiny = smallest_model();
    tiny.seed = random.next();
    const bool fused = random.below(4) == 0;
    if (fused) tiny.architecture = "phi3";
    const auto model = [&] {
        GgufBuilder builder = tiny_model(tiny);
        if (fused) {
            builder.fuse({"attn_q", "attn_k", "attn_v"}, "attn_qkv");
            builder.fuse({"ffn_gate", "ffn_up"}, "ffn_up");
            builder.add_f32_tensor("rope_factors_long.weight", {2}, {3.0F, 9.0F});
            builder.add_f32_tensor("rope_factors_short.weight", {2}, {1.0F, 2.0F});
            builder.set_u32("phi3.rope.scaling.original_context_length", 16);
        }
        if (random.below(4) == 0) {
            builder.set_text("tokenizer.ggml.model", random.below(2) == 0 ? "llama" : "t5");
            builder.set_texts("paceline.tokenizer.piece_rules", {"scores", "metaspace"});
            builder.set_texts("paceline.tokenizer.text_steps",
                              {"nfkc", "", "", "replace", "a", "b"});
        }
        if (random.below(4) == 0) {
            builder.set_texts("tokenizer.chat_templates", {"a"});
            builder.set_text("tokenizer.chat_template.a", "{{ tools }}");
        }
        return builder;
    };
    if (mode == 0) put(input, model().bytes());
    if (mode == 1) {
        const GgufBuilder whole = model();
        const Bytes first = shard_of(whole, 0);
        for (int shift = 0; shift < 16; shift += 8)
            input.push_back(static_cast<std::uint8_t>(first.size() >> shift));
        put(input, first);
        put(input, shard_of(whole, 1));
    }
    if (mode == 2) {
        const std::uint32_t type = random.below(std::size(kBlockTypes));
        input.push_back(static_cast<std::uint8_t>(type));
        const TypeTraits shape = traits(kBlockTypes[type]);
        for (std::size_t i = kNumbers / shape.block_elements * shape.block_bytes; i > 0; --i)
            input.push_back(static_cast<std::uint8_t>(random.next()));
    }
    return input;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    const std::span<const std::byte> bytes = std::as_bytes(std::span{data, size});
    if (data[0] % kModes == 0) {
        const GgufBytes whole{bytes.subspan(1), "fuzz"};
        read_files({&whole, 1});
    } else if (data[0] % kModes == 1) {
        const std::span<const std::byte> both = bytes.subspan(3);
        const std::size_t first = std::min<std::size_t>(data[1] + 256U * data[2], both.size());
        const GgufBytes files[] = {{both.first(first), "fuzz-1"}, {both.subspan(first), "fuzz-2"}};
        read_files(files);
    } else {
        read_blocks(kBlockTypes[data[1] % std::size(kBlockTypes)], bytes.subspan(2));
    }
    return 0;
}
