// Valid files of every architecture, and what the configuration says of them.
#include "model/weights/gguf/gguf_config.hpp"

#include <algorithm>
#include <cmath>

#include "model/weights/gguf/gguf_reader.hpp"
#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

TEST_CASE("a llama file fills the configuration") {
    GgufBuilder builder = tiny_model();
    const ModelConfig config = expect_config(builder);
    CHECK(config.architecture == Architecture::Llama);
    CHECK(config.name == "tiny");
    CHECK(config.layers == 2);
    CHECK(config.dim == 64);
    CHECK(config.heads == 4);
    CHECK(config.kv_heads == 2);
    CHECK(config.head_dim == 16);
    CHECK(config.ffn_dim == 96);
    CHECK(config.vocab_size == 288);
    CHECK(config.context_length == 256);
    CHECK(config.norm_epsilon == 1e-5F);
    CHECK(config.rope.pairing == RopePairing::Adjacent);
    CHECK(config.rope.dims == 16);
    CHECK(config.rope.scaling == RopeScaling::None);
    CHECK(config.tied_embeddings);
    CHECK_FALSE(config.qkv_bias);
    CHECK_FALSE(config.qk_norm);
}

TEST_CASE("version 2 is read like version 3, version 1 and unknown ones are refused") {
    GgufBuilder builder = tiny_model();
    builder.version = 2;
    CHECK(read_bytes(builder.bytes()).ok());
    for (const std::uint32_t version : {0U, 1U, 4U}) {
        builder.version = version;
        expect_refused(builder.bytes(), Errc::Unsupported,
                       {"GGUF version " + std::to_string(version)});
    }
}

TEST_CASE("an output tensor unties the embeddings") {
    TinyModel tiny;
    tiny.tied = false;
    const Result<ModelParts> parts = read_bytes(tiny_model(tiny).bytes());
    REQUIRE(parts.ok());
    CHECK_FALSE(parts.value().config.tied_embeddings);
    CHECK(parts.value().output_head.name == "output.weight");
    CHECK(parts.value().embedding.name == "token_embd.weight");
}

TEST_CASE("qwen2 has biases on q, k and v and pairs halves") {
    TinyModel tiny;
    tiny.architecture = "qwen2";
    GgufBuilder builder = tiny_model(tiny);
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    CHECK(parts.value().config.architecture == Architecture::Qwen2);
    CHECK(parts.value().config.qkv_bias);
    CHECK(parts.value().config.rope.pairing == RopePairing::Halves);
    REQUIRE(parts.value().layers[1].k_bias.has_value());
    CHECK(parts.value().layers[1].k_bias->cols == 32);

    builder.remove_tensor("blk.1.attn_v.bias");
    expect_refused(builder.bytes(), Errc::BadFile, {"blk.1.attn_v.bias", "missing"});
}

TEST_CASE("a llama file with biases is a llama with that switch on") {
    TinyModel tiny;
    tiny.qkv_bias = true;
    CHECK(expect_config(tiny_model(tiny)).qkv_bias);
}

TEST_CASE("qwen3 has norms on q and k and an explicit head width") {
    TinyModel tiny;
    tiny.architecture = "qwen3";
    tiny.head_dim = 32;  // 4 heads of 32 on a width of 64
    GgufBuilder builder = tiny_model(tiny);
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    const ModelConfig& config = parts.value().config;
    CHECK(config.architecture == Architecture::Qwen3);
    CHECK(config.head_dim == 32);
    CHECK(config.q_dim() == 128);
    CHECK(config.qk_norm);
    CHECK(config.rope.pairing == RopePairing::Halves);
    REQUIRE(parts.value().layers[0].q_norm.has_value());
    CHECK(parts.value().layers[0].q_norm->cols == 32);

    builder.remove_tensor("blk.0.attn_k_norm.weight");
    expect_refused(builder.bytes(), Errc::BadFile, {"blk.0.attn_k_norm.weight", "missing"});
}

TEST_CASE("every stored type is read for matrices and embedding") {
    for (const StoredType type :
         {StoredType::F32, StoredType::F16, StoredType::BF16, StoredType::Q8_0, StoredType::Q4_0,
          StoredType::Q4_1, StoredType::Q5_0, StoredType::Q5_1, StoredType::IQ4_NL,
          StoredType::MXFP4}) {
        TinyModel tiny;
        tiny.matrices = type;
        tiny.embedding = type;
        const Result<ModelParts> parts = read_bytes(tiny_model(tiny).bytes());
        REQUIRE(parts.ok());
        CHECK(parts.value().layers[0].down.type == type);
        CHECK(parts.value().layers[0].down.rows == 64);
        CHECK(parts.value().layers[0].down.cols == 96);
        const TypeTraits shape = traits(type);
        CHECK(parts.value().embedding.bytes ==
              288U * 64U / shape.block_elements * shape.block_bytes);
    }
}

TEST_CASE("integers are taken in any width, floats in both") {
    GgufBuilder builder = tiny_model();
    builder.set_u64("llama.block_count", 2);
    builder.set_i32("llama.embedding_length", 64);
    builder.set("llama.attention.head_count", 0, {std::byte{4}});
    builder.set_f64("llama.attention.layer_norm_rms_epsilon", 1e-6);
    const ModelConfig config = expect_config(builder);
    CHECK(config.layers == 2);
    CHECK(config.dim == 64);
    CHECK(config.heads == 4);
    CHECK(config.norm_epsilon == 1e-6F);
}

TEST_CASE("an absent head_count_kv means as many KV heads as heads") {
    TinyModel tiny;
    tiny.kv_heads = 4;
    GgufBuilder builder = tiny_model(tiny);
    builder.remove_key("llama.attention.head_count_kv");
    CHECK(expect_config(builder).kv_heads == 4);
}

TEST_CASE("rope scaling: linear, by its own keys and by the older one") {
    GgufBuilder builder = tiny_model();
    builder.set_text("llama.rope.scaling.type", "linear");
    builder.set_f32("llama.rope.scaling.factor", 4.0F);
    CHECK(expect_config(builder).rope.scaling == RopeScaling::Linear);
    CHECK(expect_config(builder).rope.factor == 4.0F);
    builder.remove_key("llama.rope.scaling.type");
    CHECK(expect_config(builder).rope.scaling == RopeScaling::Linear);
    builder.remove_key("llama.rope.scaling.factor");
    builder.set_f32("llama.rope.scale_linear", 2.0F);
    CHECK(expect_config(builder).rope.scaling == RopeScaling::Linear);
    CHECK(expect_config(builder).rope.factor == 2.0F);
    builder.set_f32("llama.rope.scale_linear", 1.0F);
    CHECK(expect_config(builder).rope.scaling == RopeScaling::None);
}

TEST_CASE("rope scaling: yarn with its defaults and with every key") {
    GgufBuilder builder = tiny_model();
    builder.set_text("llama.rope.scaling.type", "yarn");
    builder.set_f32("llama.rope.scaling.factor", 4.0F);
    RopeConfig rope = expect_config(builder).rope;
    CHECK(rope.scaling == RopeScaling::Yarn);
    CHECK(rope.factor == 4.0F);
    CHECK(rope.original_context == 256);  // the context of the file
    CHECK(rope.attention_factor == 0.0F);
    CHECK(rope.beta_fast == 32.0F);
    CHECK(rope.beta_slow == 1.0F);

    builder.set_u32("llama.rope.scaling.original_context_length", 64);
    builder.set_f32("llama.rope.scaling.yarn_beta_fast", 16.0F);
    builder.set_f32("llama.rope.scaling.yarn_beta_slow", 2.0F);
    builder.set_f32("llama.rope.scaling.attn_factor", 0.5F);
    rope = expect_config(builder).rope;
    CHECK(rope.original_context == 64);
    CHECK(rope.beta_fast == 16.0F);
    CHECK(rope.beta_slow == 2.0F);
    CHECK(rope.attention_factor == doctest::Approx(0.5 * (0.1 * std::log(4.0) + 1.0)));
}

TEST_CASE(
    "rope scaling: the factor that a converter writes for yarn is not applied a second time") {
    GgufBuilder builder = tiny_model();
    builder.set_text("llama.rope.scaling.type", "yarn");
    builder.set_f32("llama.rope.scaling.factor", 8.0F);
    builder.set_f32("llama.rope.scaling.yarn_attn_factor", 1.25F);
    CHECK(expect_config(builder).rope.attention_factor == 1.25F);
    builder.set_f32("llama.rope.scaling.attn_factor", 2.0F);
    CHECK(expect_config(builder).rope.attention_factor == 2.5F);
}

TEST_CASE(
    "rope scaling: a factor that is stated counts to its last bit, also where it is yarn's own") {
    GgufBuilder builder = tiny_model();
    builder.set_text("llama.rope.scaling.type", "yarn");
    builder.set_f32("llama.rope.scaling.factor", 8.0F);
    const float own = 0.1F * std::log(8.0F) + 1.0F;
    builder.set_f32("llama.rope.scaling.yarn_attn_factor", own);
    CHECK(expect_config(builder).rope.attention_factor == own);  // 0 would be more digits of it
}

TEST_CASE("rope scaling: llama3 comes as a tensor of factors") {
    TinyModel tiny;
    tiny.rope_factors = true;
    GgufBuilder builder = tiny_model(tiny);
    const RopeConfig rope = expect_config(builder).rope;
    CHECK(rope.scaling == RopeScaling::Factors);
    REQUIRE(rope.factors.size() == 8);
    for (const float factor : rope.factors) CHECK((factor >= 1.0F && factor <= 8.0F));

    builder.set_text("llama.rope.scaling.type", "linear");
    builder.set_f32("llama.rope.scaling.factor", 2.0F);
    expect_refused(builder.bytes(), Errc::Unsupported,
                   {"rope_freqs.weight", "another rope scaling"});
}

TEST_CASE("a window as wide as the context, or none, changes nothing") {
    GgufBuilder builder = tiny_model();
    for (const std::uint32_t window : {0U, 256U, 4096U}) {
        builder.set_u32("llama.attention.sliding_window", window);
        CHECK(read_bytes(builder.bytes()).ok());
    }
}

TEST_CASE("a window narrower than the context cuts it, which a remark says") {
    GgufBuilder builder = tiny_model();
    builder.set_u32("llama.attention.sliding_window", 128);
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    CHECK(parts.value().config.context_length == 128);
    REQUIRE(parts.value().remarks.size() == 1);
    CHECK(parts.value().remarks[0] ==
          "the context is 128 of 256 tokens: layers see the last 128 tokens "
          "(llama.attention.sliding_window)");
}

TEST_CASE("yarn without an original context extends the stated one, whatever the window") {
    GgufBuilder builder = tiny_model();
    builder.set_text("llama.rope.scaling.type", "yarn");
    builder.set_f32("llama.rope.scaling.factor", 4.0F);
    builder.set_u32("llama.attention.sliding_window", 128);
    const ModelConfig config = expect_config(builder);
    CHECK(config.rope.original_context == 256);
    CHECK(config.context_length == 128);
}

TEST_CASE("what a GGUF file cannot say about its model is said, unless its rope is scaled") {
    GgufBuilder builder = tiny_model();
    const Result<ModelParts> plain = read_bytes(builder.bytes());
    REQUIRE(plain.ok());
    REQUIRE(plain.value().remarks.size() == 1);
    CHECK(plain.value().remarks[0].find("sliding window or dynamic rope scaling") !=
          std::string::npos);
    builder.set_f32("llama.rope.scaling.factor", 4.0F);
    const Result<ModelParts> scaled = read_bytes(builder.bytes());
    REQUIRE(scaled.ok());
    CHECK(scaled.value().remarks.empty());
}

TEST_CASE("the shape of Mistral 7B v0.1 has its window, which its GGUF files do not state") {
    // The configuration alone: the tensors of a tiny model are too few, and named as missing.
    GgufBuilder builder = tiny_model();
    builder.set_u32("llama.block_count", 32);
    builder.set_u32("llama.embedding_length", 4096);
    builder.set_u32("llama.feed_forward_length", 14336);
    builder.set_u32("llama.attention.head_count", 32);
    builder.set_u32("llama.attention.head_count_kv", 8);
    builder.set_u32("llama.context_length", 32768);
    builder.set_u32("llama.rope.dimension_count", 128);
    const auto context = [&builder] {
        const Bytes bytes = builder.bytes();
        const std::string file = "model.gguf";
        const Result<GgufHeader> header = parse_gguf(bytes, file);
        REQUIRE(header.ok());
        GgufKeys keys(header.value(), file);
        std::vector<std::string> remarks;
        const Result<ModelConfig> config = read_config(keys, remarks);
        REQUIRE(config.ok());
        CHECK(remarks.empty() == (config.value().context_length == 32768));
        return config.value().context_length;
    };
    CHECK(context() == 4096);
    builder.set_f32("llama.rope.freq_base", 1e6F);  // v0.2 and later
    CHECK(context() == 32768);
}

TEST_CASE("further chat templates are read by the names that the file lists") {
    GgufBuilder builder = tiny_model();
    builder.set_text("tokenizer.chat_template", "{{ messages }}");
    builder.set_texts("tokenizer.chat_templates", {"tool_use", "rag"});
    builder.set_text("tokenizer.chat_template.tool_use", "{{ tools }}");
    builder.set_text("tokenizer.chat_template.rag", "{{ documents }}");
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    CHECK(parts.value().tokenizer.chat_template == "{{ messages }}");
    CHECK(parts.value().chat.more == std::vector<std::pair<std::string, std::string>>{
                                         {"tool_use", "{{ tools }}"}, {"rag", "{{ documents }}"}});
    builder.set_texts("tokenizer.chat_templates", std::vector<std::string>(65, "x"));
    expect_refused(builder.bytes(), Errc::BadFile, {"tokenizer.chat_templates has 65 entries"});
}

TEST_CASE("fused matrices of phi3 are read as the parts that they are made of") {
    TinyModel tiny;
    tiny.architecture = "phi3";
    tiny.matrices = StoredType::Q4_1;
    GgufBuilder builder = tiny_model(tiny);
    const Bytes separate = builder.tensor("blk.1.attn_k.weight").data;
    builder.fuse({"attn_q", "attn_k", "attn_v"}, "attn_qkv");
    builder.fuse({"ffn_gate", "ffn_up"}, "ffn_up");
    const Bytes bytes = builder.bytes();
    const Result<ModelParts> read = read_gguf(bytes);
    REQUIRE(read.ok());
    CHECK(read.value().architecture == "phi3");
    CHECK(read.value().config.rope.pairing == RopePairing::Halves);
    const LayerTensors& layer = read.value().layers[1];
    CHECK(layer.k.name == "blk.1.attn_k.weight");
    CHECK(layer.k.rows == 32);
    REQUIRE(layer.k.bytes == separate.size());
    CHECK(std::equal(separate.begin(), separate.end(), layer.k.data));
    CHECK(layer.up.rows == 96);
    CHECK(layer.up.data == layer.gate.data + layer.gate.bytes);
}

TEST_CASE("fused matrices of phi3 must have the rows of their parts") {
    TinyModel tiny;
    tiny.architecture = "phi3";
    expect_refused(tiny_model(tiny).bytes(), Errc::BadFile,
                   {"blk.0.ffn_up.weight", "has 96 rows", "demands 192"});
}

TEST_CASE("a file without a tokenizer is read, with an empty tokenizer") {
    TinyModel tiny;
    tiny.tokenizer = false;
    const Result<ModelParts> parts = read_bytes(tiny_model(tiny).bytes());
    REQUIRE(parts.ok());
    CHECK(parts.value().tokenizer.tokens.empty());
    CHECK(parts.value().tokenizer.model.empty());
    CHECK(parts.value().config.vocab_size == 288);
}

TEST_CASE("the tokenizer's data are taken as they stand") {
    GgufBuilder builder = tiny_model();
    builder.set_texts("tokenizer.ggml.merges", {"a b", "c d"});
    builder.set_text("tokenizer.chat_template", "{{ messages }}");
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    const TokenizerData& data = parts.value().tokenizer;
    CHECK(data.model == "gpt2");
    CHECK(data.pre == "smollm");
    REQUIRE(data.tokens.size() == 288);
    CHECK(data.tokens[1] == "<|im_start|>");
    CHECK(data.tokens[3 + 32] == "\u0120");  // a space
    CHECK(data.kinds[1] == TokenKind::Control);
    CHECK(data.kinds[3] == TokenKind::Normal);
    CHECK(data.merges == std::vector<std::string>{"a b", "c d"});
    CHECK(data.bos == 1);
    CHECK(data.eos == 2);
    CHECK_FALSE(data.eot.has_value());
    CHECK_FALSE(data.add_bos);
    CHECK(data.chat_template == "{{ messages }}");
}

TEST_CASE("a BOS that a file does not speak of is its family's, and a false one is false") {
    const auto add_bos = [](const char* model, const char* pre, std::optional<bool> stated) {
        GgufBuilder builder = tiny_model();
        builder.set_text("tokenizer.ggml.model", model);
        builder.set_text("tokenizer.ggml.pre", pre);
        builder.remove_key("tokenizer.ggml.add_bos_token");
        if (stated) builder.set_bool("tokenizer.ggml.add_bos_token", *stated);
        const Result<ModelParts> parts = read_bytes(builder.bytes());
        REQUIRE(parts.ok());
        return parts.value().tokenizer.add_bos;
    };
    for (const char* pre : {"llama-bpe", "tekken"}) CHECK(add_bos("gpt2", pre, std::nullopt));
    for (const char* pre : {"smollm", "gpt-2", "qwen2"})
        CHECK_FALSE(add_bos("gpt2", pre, std::nullopt));
    CHECK(add_bos("llama", "default", std::nullopt));
    CHECK_FALSE(add_bos("t5", "default", std::nullopt));
    CHECK_FALSE(add_bos("gpt2", "llama-bpe", false));
    CHECK_FALSE(add_bos("llama", "default", false));
    CHECK(add_bos("gpt2", "smollm", true));
}

TEST_CASE("a SentencePiece file gives scores and rules, and what it leaves out is Llama's") {
    GgufBuilder builder = tiny_model();
    builder.set_text("tokenizer.ggml.model", "llama");
    std::vector<float> scores(288, -1.5F);
    builder.set_floats("tokenizer.ggml.scores", scores);
    builder.remove_key("tokenizer.ggml.bos_token_id");
    builder.remove_key("tokenizer.ggml.eos_token_id");
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    const TokenizerData& data = parts.value().tokenizer;
    CHECK(data.scores == std::vector<double>(288, -1.5));
    CHECK(data.bos == 1);
    CHECK(data.eos == 2);
    CHECK(data.unknown == 0);
    REQUIRE(data.pieces.steps.size() == 2);
    CHECK(data.pieces.steps[0].kind == TextStep::Kind::Prepend);
    CHECK(data.pieces.drops_space);
    builder.set_bool("tokenizer.ggml.add_space_prefix", false);
    const Result<ModelParts> bare = read_bytes(builder.bytes());
    REQUIRE(bare.ok());
    CHECK(bare.value().tokenizer.pieces.steps.size() == 1);
    CHECK_FALSE(bare.value().tokenizer.pieces.drops_space);
}

}  // namespace
}  // namespace paceline
