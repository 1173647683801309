// Well-formed files that Paceline cannot run: each is refused, and the message names why.
#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

void expect_unsupported(const GgufBuilder& builder, std::initializer_list<std::string_view> words) {
    expect_refused(builder.bytes(), Errc::Unsupported, words);
}

TEST_CASE("an unknown architecture is refused by name") {
    TinyModel tiny;
    tiny.architecture = "gemma2";
    expect_unsupported(tiny_model(tiny), {"gemma2", "general.architecture"});
}

TEST_CASE("a block type that cannot be read is refused by its name and its tensor's") {
    GgufBuilder builder = tiny_model();
    builder.tensor("blk.1.ffn_up.weight").ggml_type = 19;
    expect_unsupported(builder, {"blk.1.ffn_up.weight", "IQ1_S"});
    builder.tensor("blk.1.ffn_up.weight").ggml_type = 40;
    expect_unsupported(builder, {"NVFP4"});
    builder.tensor("blk.1.ffn_up.weight").ggml_type = 4;  // removed from the format
    expect_unsupported(builder, {"unknown type number 4"});
    builder.tensor("blk.1.ffn_up.weight").ggml_type = 0xFFFFFFFF;
    expect_unsupported(builder, {"unknown type number 4294967295"});
}

TEST_CASE("rope kinds that cannot be computed are refused by name") {
    GgufBuilder builder = tiny_model();
    builder.set_text("llama.rope.scaling.type", "longrope");
    expect_unsupported(builder, {"longrope", "llama.rope.scaling.type"});
    builder.set_text("llama.rope.scaling.type", "none");
    builder.set_f32("llama.rope.scaling.attn_factor", 1.2F);
    expect_unsupported(builder, {"llama.rope.scaling.attn_factor"});
}

TEST_CASE("a bias of the output projection is refused by its tensor unless it is zero") {
    TinyModel tiny;
    tiny.qkv_bias = true;
    GgufBuilder builder = tiny_model(tiny);
    std::vector<float> bias(64, 0.0F);
    builder.add_f32_tensor("blk.1.attn_output.bias", {64}, bias);
    CHECK(read_bytes(builder.bytes()).ok());
    builder.remove_tensor("blk.1.attn_output.bias");
    bias[7] = 0.25F;
    builder.add_f32_tensor("blk.1.attn_output.bias", {64}, bias);
    expect_unsupported(builder, {"blk.1.attn_output.bias", "0.25 at 7", "only where it is zero"});
}

TEST_CASE("keys and values of different widths are refused") {
    GgufBuilder builder = tiny_model();
    builder.set_u32("llama.attention.key_length", 32);
    expect_unsupported(builder, {"key_length 32", "value_length 16"});
}

TEST_CASE("a mixture of experts under the name llama is refused") {
    GgufBuilder builder = tiny_model();
    builder.set_u32("llama.expert_count", 8);
    expect_unsupported(builder, {"mixture of experts", "llama.expert_count", "8"});
}

TEST_CASE("arithmetic that is no switch of the configuration is refused, neutral values are not") {
    GgufBuilder builder = tiny_model();
    builder.set_f32("llama.logit_scale", 1.0F);
    builder.set_f32("llama.attn_logit_softcapping", 0.0F);
    builder.set_bool("llama.attention.causal", true);
    CHECK(read_bytes(builder.bytes()).ok());
    builder.set_f32("llama.logit_scale", 0.5F);
    expect_unsupported(builder, {"scaled logits", "llama.logit_scale"});
    builder.set_f32("llama.logit_scale", 1.0F);
    builder.set_f32("llama.attn_logit_softcapping", 50.0F);
    expect_unsupported(builder, {"attention soft-capping"});
    builder.set_f32("llama.attn_logit_softcapping", 0.0F);
    builder.set_bool("llama.attention.causal", false);
    expect_unsupported(builder, {"llama.attention.causal"});
}

TEST_CASE("a tensor that the model has no place for is refused rather than ignored") {
    GgufBuilder builder = tiny_model();
    builder.add_f32_tensor("blk.0.attn_output.bias", {64}, std::vector<float>(64, 0.5F));
    expect_unsupported(builder, {"blk.0.attn_output.bias", "no place"});
}

TEST_CASE("quantised norms are refused") {
    GgufBuilder builder = tiny_model();
    BuiltTensor& norm = builder.tensor("blk.0.ffn_norm.weight");
    norm.ggml_type = 8;
    norm.data.resize(68);
    expect_unsupported(builder, {"blk.0.ffn_norm.weight", "Q8_0"});
}

TEST_CASE("a big-endian file is recognised") {
    GgufBuilder builder = tiny_model();
    builder.version = 0x03000000;
    expect_unsupported(builder, {"big-endian"});
}

}  // namespace
}  // namespace paceline
