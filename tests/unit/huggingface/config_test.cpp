// config.json: names of both versions of transformers, defaults of its classes, and what is
// refused.
#include <doctest/doctest.h>

#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_parts.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"

namespace paceline::testing {
namespace {

constexpr const char* kConfig = "config.json";

/// How a folder with this change to its config.json is refused.
Error refused_with(const nlohmann::json& patch, const char* fixture = "llama-dynamic-f32") {
    const FolderCopy copy(fixture);
    copy.patch(kConfig, patch);
    return copy.refused();
}

void check_unsupported(const nlohmann::json& patch, const std::string& part) {
    const Error error = refused_with(patch);
    CAPTURE(error.what);
    CHECK(error.code == Errc::Unsupported);
    CHECK(contains(error.what, part));
    CHECK(contains(error.what, "config.json"));
}

void check_bad(const nlohmann::json& patch, const std::string& part) {
    const Error error = refused_with(patch);
    CAPTURE(error.what);
    CHECK(error.code == Errc::BadFile);
    CHECK(contains(error.what, part));
    CHECK(contains(error.what, "config.json"));
}

}  // namespace

TEST_CASE("the names of transformers 4 and 5 say the same rope") {
    const FolderCopy copy("qwen2-yarn-keys-f32");
    const RopeConfig v5 = copy.opened().config().rope;
    nlohmann::json rope = copy.json(kConfig).at("rope_parameters");
    const nlohmann::json theta = rope.at("rope_theta");
    rope.erase("rope_theta");
    rope["type"] = rope.at("rope_type");
    rope.erase("rope_type");
    copy.patch(kConfig,
               {{"rope_parameters", nullptr}, {"rope_theta", theta}, {"rope_scaling", rope}});
    const RopeConfig v4 = copy.opened().config().rope;
    CHECK(v5.base == 20000.0F);
    CHECK(v5.scaling == RopeScaling::Yarn);
    CHECK(v4.base == v5.base);
    CHECK(v4.scaling == v5.scaling);
    CHECK(v4.attention_factor == v5.attention_factor);
    CHECK(v4.beta_fast == v5.beta_fast);
    CHECK(v4.original_context == v5.original_context);
}

TEST_CASE("what config.json does not say is what the class takes") {
    const FolderCopy copy("llama-dynamic-f32");
    copy.patch(kConfig, {{"rms_norm_eps", nullptr},
                         {"head_dim", nullptr},
                         {"rope_theta", nullptr},
                         {"rope_scaling", nullptr},
                         {"architectures", nullptr},
                         {"hidden_act", nullptr}});
    const ModelFile file = copy.opened();
    CHECK(file.config().norm_epsilon == 1e-6F);
    CHECK(file.config().head_dim == 8);
    CHECK(file.config().rope.base == 10000.0F);
    CHECK(file.config().rope.scaling == RopeScaling::None);
}

TEST_CASE("what would change the arithmetic is refused by name") {
    check_unsupported({{"architectures", {"GemmaForCausalLM"}}}, "\"GemmaForCausalLM\"");
    check_unsupported({{"architectures", {"LlamaForSequenceClassification"}}},
                      "LlamaForCausalLM, Mistral");
    check_unsupported({{"model_type", "granite"}}, "model_type \"granite\"");
    check_unsupported({{"architectures", nullptr}, {"model_type", "gemma"}},
                      "\"gemma\" (model_type)");
    check_unsupported({{"quantization_config", {{"quant_method", "awq"}}}}, "\"awq\"");
    check_unsupported({{"hidden_act", "gelu"}}, "hidden_act \"gelu\"");
    check_unsupported({{"mlp_bias", true}}, "mlp_bias");
    check_unsupported({{"rope_scaling", {{"type", "ntk"}, {"rope_type", "ntk"}}}}, "\"ntk\"");
    check_unsupported({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
    check_unsupported(
        {{"rope_scaling", {{"type", "yarn"}, {"rope_type", "yarn"}, {"truncate", false}}}},
        "rope_scaling.truncate");
}

TEST_CASE("a window and rope kinds that end a context are said in a remark") {
    const auto remarks = [](const std::string& fixture) {
        const ModelFile file = ModelFile::open(folder_fixture(fixture)).value();
        return file.contents().parts.remarks;
    };
    REQUIRE(remarks("mistral-window-bf16").size() == 1);
    CHECK(contains(remarks("mistral-window-bf16")[0], "the context is 48 of 256 tokens"));
    REQUIRE(remarks("llama-dynamic-f32").size() == 1);
    CHECK(contains(remarks("llama-dynamic-f32")[0], "dynamic rope scaling would begin"));
    CHECK(remarks("qwen3-bf16").empty());
}

TEST_CASE("rope values one level deeper are not read, and a remark says so") {
    const FolderCopy copy("qwen3-bf16");
    const nlohmann::json nested = {
        {"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 500000.0}};
    copy.patch(kConfig,
               {{"rope_theta", nullptr}, {"rope_parameters", nullptr}, {"rope_scaling", nullptr}});
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        copy.patch(kConfig, {{"rope_parameters", nullptr}, {"rope_scaling", nullptr}});
        copy.patch(kConfig, {{key, {{"full_attention", nested}}}});
        const ModelFile file = copy.opened();
        CHECK(file.config().rope.scaling == RopeScaling::None);
        CHECK(file.config().rope.base == 10000.0F);
        REQUIRE(file.contents().parts.remarks.size() == 1);
        CHECK(contains(file.contents().parts.remarks[0],
                       std::string{key} + ".full_attention is not read"));
        CHECK(contains(file.contents().parts.remarks[0],
                       "rope_theta is 10000, and the rope is not scaled"));
    }
}

TEST_CASE("a bias of the output projection is refused by its tensor unless it is zero") {
    const FolderCopy copy("llama-bias-f16");
    CHECK(copy.opened().config().qkv_bias);
    copy.patch(kConfig, {{"attention_bias", false}});
    CHECK(contains(copy.refused().what, "bias\" has no place in this architecture"));
    copy.patch(kConfig, {{"attention_bias", true}});
    // The numbers of a bias in the file: the last bytes of the tensor are made those of 1.0.
    std::string bytes = text_of(copy.file("model.safetensors"));
    const std::uint64_t header = *reinterpret_cast<const std::uint64_t*>(bytes.data());
    const auto names = nlohmann::json::parse(bytes.substr(8, header));
    const auto& bias = names.at("model.layers.1.self_attn.o_proj.bias");
    const std::size_t end = 8 + header + bias.at("data_offsets")[1].get<std::size_t>();
    bytes.replace(end - 4, 4, std::string{"\0\0\x80\x3f", 4});
    copy.write("model.safetensors", bytes);
    CHECK(
        contains(copy.refused().what, "o_proj.bias\" holds 1 at 31; this bias is supported only"));
}

TEST_CASE("phi3: lists of rope factors, partial rotation and fused rows are checked") {
    const auto refused = [](const nlohmann::json& patch) {
        const FolderCopy copy("phi3-f16");
        copy.patch(kConfig, patch);
        return copy.refused().what;
    };
    const ModelFile file = ModelFile::open(folder_fixture("phi3-f16")).value();
    CHECK(file.config().rope.dims == 4);
    CHECK(file.config().rope.factors.size() == 2);
    CHECK(file.config().context_length == 96);
    CHECK(contains(file.contents().parts.remarks.at(0), "the context is 96 of 256 tokens"));
    CHECK(contains(refused({{"rope_parameters", {{"short_factor", {1.0, 2.0, 3.0}}}}}),
                   "short_factor must be a list of 2 numbers"));
    CHECK(contains(refused({{"rope_parameters", {{"short_factor", {1.0, -2.0}}}}}),
                   "short_factor holds -2"));
    CHECK(contains(refused({{"rope_parameters", {{"long_factor", {1.0, 1e9}}}}}),
                   "long_factor holds 1"));
    CHECK(file.contents().parts.long_rope.context == 256);
    CHECK(file.contents().parts.long_rope.factors.size() == 2);
    const FolderCopy windowed("phi3-f16");
    windowed.patch(kConfig, {{"sliding_window", 128}});  // both lists within it
    CHECK(windowed.opened().config().context_length == 96);
    CHECK(windowed.opened().contents().parts.long_rope.context == 128);
    CHECK(contains(refused({{"num_key_value_heads", 4}}), "qkv_proj.weight"));
    CHECK(contains(refused({{"partial_rotary_factor", 0.4},
                            {"rope_parameters", {{"partial_rotary_factor", 0.4}}}}),
                   "is not an even number of them"));
}

TEST_CASE("a number that is missing, of another type or out of range is named with its value") {
    check_bad({{"hidden_size", nullptr}}, "hidden_size is missing");
    check_bad({{"hidden_size", "many"}}, "hidden_size is \"many\"; it must be a whole number");
    check_bad({{"hidden_size", 32.5}}, "hidden_size is 32.5");
    check_bad({{"hidden_size", -1}}, "hidden_size is -1; possible are 1 to 131072");
    check_bad({{"vocab_size", 18446744073709551615ULL}}, "vocab_size is 18446744073709551615");
    check_bad({{"num_hidden_layers", 1 << 30}}, "num_hidden_layers is 1073741824");
    check_bad({{"num_attention_heads", 3}}, "no multiple of num_key_value_heads");
    check_bad({{"head_dim", 7}}, "heads of 7 dimensions");
    check_bad({{"rms_norm_eps", 1e300}}, "rms_norm_eps is 1e+300");
    check_bad({{"rope_theta", 0}}, "rope_theta is 0");
    check_bad({{"rope_scaling", {{"factor", 0.1}}}}, "rope_scaling.factor is 0.1");
    check_bad({{"rope_scaling", "linear"}}, "rope_scaling is \"linear\"; it must be an object");
    check_bad({{"rope_scaling", {{"type", "llama3"}, {"rope_type", "llama3"}}}},
              "low_freq_factor is missing");
    check_bad({{"architectures", {1, 2}}}, "architectures is a list of 2");
    check_bad({{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1; it must be true or false");
    check_bad({{"intermediate_size", nlohmann::json::array()}}, "intermediate_size is a list of 0");
}

TEST_CASE("a head beside tied embeddings counts where it is another one, as in transformers") {
    const FolderCopy copy("mistral-window-bf16");
    CHECK_FALSE(copy.opened().config().tied_embeddings);
    copy.patch(kConfig, {{"tie_word_embeddings", true}});
    CHECK_FALSE(copy.opened().config().tied_embeddings);
    const FolderCopy tied("llama-dynamic-f32");
    CHECK(tied.opened().config().tied_embeddings);
    tied.patch(kConfig, {{"tie_word_embeddings", false}});
    CHECK(contains(tied.refused().what, "\"lm_head.weight\" is missing"));
}

TEST_CASE("a tokenizer that is not supported leaves a model that can be inspected") {
    const auto refusal = [](const FolderCopy& copy) {
        const ModelFile file = copy.opened();
        const Result<Tokenizer> made = Tokenizer::make(file.tokenizer());
        REQUIRE_FALSE(made.ok());
        CHECK(made.error().code == Errc::Unsupported);
        return made.error().what;
    };
    const FolderCopy copy("llama-dynamic-f32");
    copy.patch("tokenizer.json", {{"model", {{"byte_fallback", true}}}});
    CHECK(contains(refusal(copy), "model.byte_fallback with ByteLevel"));
    copy.patch("tokenizer.json", {{"model", {{"type", "WordPiece"}}}});
    CHECK(contains(refusal(copy), "\"WordPiece\""));
    copy.patch("tokenizer.json", {{"model", {{"byte_fallback", false}, {"type", "Unigram"}}}});
    CHECK(contains(refusal(copy), "\"Unigram\""));
    copy.patch("tokenizer.json",
               {{"model", {{"type", "BPE"}}}, {"normalizer", {{"type", "Lowercase"}}}});
    CHECK(contains(refusal(copy), "normalizer \"Lowercase\""));
    copy.patch("tokenizer.json",
               {{"normalizer", nullptr}, {"pre_tokenizer", {{"type", "Metaspace"}}}});
    CHECK(contains(refusal(copy), "pre_tokenizer \"Metaspace\""));
    copy.patch("tokenizer.json",
               {{"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AA=="}}},
                {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}}}});
    CHECK(contains(refusal(copy), "normalizer \"Precompiled\""));
    copy.patch("tokenizer.json", {{"normalizer", nullptr}});
    CHECK(contains(refusal(copy), "decoder \"ByteLevel\""));
    copy.remove("tokenizer.json");
    CHECK(contains(refusal(copy), "no tokenizer.json"));
    copy.write("tokenizer.model", "x");
    CHECK(contains(refusal(copy), "SentencePiece"));
}

}  // namespace paceline::testing
