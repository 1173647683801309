// Models converted to packed GGUF files: the bits of the source packed on load, its tokens, and
// what is refused.
#include "model/weights/convert.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include <doctest/doctest.h>

#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/model_parts.hpp"
#include "model/weights/packed_copy.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/support/parity.hpp"
#include "tests/unit/cpu/cpu_traits.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"

namespace paceline::testing {
namespace {

constexpr const char* kFolders[] = {"llama-untied-f16",
                                    "llama-linear-bf16",
                                    "llama-yarn-f16",
                                    "llama3-bf16",
                                    "qwen2-f16",
                                    "qwen3-bf16",
                                    "llama-dynamic-f32",
                                    "mistral-window-bf16",
                                    "qwen2-yarn-keys-f32",
                                    "llama-yarn-attention-f16",
                                    "phi3-f16"};

struct Packing {
    StoredType type;
    Dtype dtype;  // of the source, on load
};
constexpr Packing kPackings[] = {{StoredType::Q8_0, Dtype::Int8},
                                 {StoredType::Q4_1, Dtype::Q4},
                                 {StoredType::BF16, Dtype::BF16}};

ModelFile opened(const std::string& path) {
    Result<ModelFile> file = ModelFile::open(path);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().what));
    return std::move(file).value();
}

Status converted(const ModelFile& model,
                 const std::string& path,
                 const ConvertOptions& options,
                 bool sealed = false) {
    const Result<ConvertPlan> plan = plan_conversion(model, options);
    if (!plan) return plan.error();
    Result<UnfinishedFile> out = UnfinishedFile::begin(path, UnfinishedFile::Beside::Refuse);
    if (!out) return out.error();
    if (Status s = write_converted(model, plan.value(), options, out.value()); !s) return s;
    CHECK(out.value().bytes() == plan.value().bytes);
    if (sealed) CHECK(seal_copy(out.value()).ok());
    return out.value().keep();
}

std::vector<float> logits_of(const ModelFile& file, Dtype dtype) {
    const auto backend = CpuTraits::make(file, {.dtype = dtype});
    const std::vector<TokenId> tokens{1, 17, 300, 42, 5, 99, 250, 7};
    return sequence_logits(*backend, tokens, static_cast<int>(tokens.size()));
}

void check_same_config(const ModelConfig& a, const ModelConfig& b) {
    CHECK(a.architecture == b.architecture);
    CHECK(a.name == b.name);
    CHECK(a.head_dim == b.head_dim);
    CHECK(a.kv_heads == b.kv_heads);
    CHECK(a.context_length == b.context_length);
    CHECK(a.norm_epsilon == b.norm_epsilon);
    CHECK(a.rope.pairing == b.rope.pairing);
    CHECK(a.rope.scaling == b.rope.scaling);
    CHECK(a.rope.dims == b.rope.dims);
    CHECK(a.rope.base == b.rope.base);
    CHECK(a.rope.factor == b.rope.factor);
    CHECK(a.rope.factors == b.rope.factors);
    CHECK(a.rope.attention_factor == b.rope.attention_factor);
    CHECK(a.rope.original_context == b.rope.original_context);
    CHECK(a.qkv_bias == b.qkv_bias);
    CHECK(a.tied_embeddings == b.tied_embeddings);
}

void check_same_tokenizer(const TokenizerData& a, const TokenizerData& b, const std::string& name) {
    CHECK(a.tokens == b.tokens);
    CHECK(a.kinds == b.kinds);
    CHECK(a.merges == b.merges);
    CHECK(a.end_tokens == b.end_tokens);
    CHECK(a.late_tokens == b.late_tokens);
    CHECK(a.chat_template == b.chat_template);
    const Result<Tokenizer> ours = Tokenizer::make(a);
    const Result<Tokenizer> theirs = Tokenizer::make(b);
    REQUIRE(ours.ok());
    REQUIRE(theirs.ok());
    CHECK(ours.value().prompt_bos() == theirs.value().prompt_bos());
    CHECK(ours.value().end_tokens() == theirs.value().end_tokens());
    const nlohmann::json notes =
        nlohmann::json::parse(text_of(folder_fixture(name) + ".golden.json"));
    for (const nlohmann::json& text : notes.value("texts", nlohmann::json::array())) {
        const auto words = text[0].get<std::string>();
        CHECK(ours.value().encode(words, SpecialTokens::Parse) ==
              theirs.value().encode(words, SpecialTokens::Parse));
    }
}

/// The place of a tensor's last number in the file of weights.
std::size_t end_of(const ModelFile& file, const TensorView& tensor) {
    return static_cast<std::size_t>(tensor.data - file.contents().shards.front().bytes().data()) +
           tensor.bytes;
}

}  // namespace

TEST_CASE(
    "a converted folder gives the bits of the folder packed on load, with any packing and dtype") {
    const test::TestFolder out;
    for (const char* name : kFolders) {
        CAPTURE(name);
        const ModelFile folder = opened(folder_fixture(name));
        for (const Packing& packing : kPackings) {
            CAPTURE(traits(packing.type).name);
            const std::string path = (out.path() / "model.gguf").string();
            const Status done = converted(folder, path, {.type = packing.type, .threads = 2});
            REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().what));
            const ModelFile gguf = opened(path);
            CHECK(gguf.format() == "GGUF v3");
            check_same_config(folder.config(), gguf.config());
            const std::vector<float> wanted = logits_of(folder, packing.dtype);
            CHECK(same_bits(logits_of(gguf, packing.dtype), wanted));
            // Rows that are no whole number of blocks stay wide in the file, and auto keeps them
            // so.
            const bool whole = gguf.config().ffn_dim % 32 == 0;
            CHECK(same_bits(logits_of(gguf, Dtype::Auto), wanted) ==
                  (whole || packing.type == StoredType::BF16));
        }
    }
}

TEST_CASE("a converted folder has the folder's tokens, template and ends of an answer") {
    const test::TestFolder out;
    for (const char* name : kFolders) {
        CAPTURE(name);
        const ModelFile folder = opened(folder_fixture(name));
        const std::string path = (out.path() / "model.gguf").string();
        REQUIRE(converted(folder, path, {.type = StoredType::Q8_0}).ok());
        check_same_tokenizer(folder.tokenizer(), opened(path).tokenizer(), name);
    }
}

TEST_CASE(
    "added tokens take the white space beside them, and are searched in the normalised text, in "
    "the converted "
    "file too") {
    const FolderCopy copy{"llama-untied-f16"};
    nlohmann::json tokenizer = copy.json("tokenizer.json");
    tokenizer["added_tokens"][1]["rstrip"] = true;
    tokenizer["added_tokens"][2]["lstrip"] = true;
    tokenizer["added_tokens"][2]["rstrip"] = true;
    tokenizer["added_tokens"][1]["normalized"] = true;
    copy.write("tokenizer.json", tokenizer.dump());
    const ModelFile folder = copy.opened();
    const test::TestFolder out;
    const std::string path = (out.path() / "model.gguf").string();
    REQUIRE(converted(folder, path, {.type = StoredType::BF16}).ok());
    const ModelFile gguf = opened(path);
    const TokenizerData& read = gguf.tokenizer();
    CHECK_FALSE(read.late_tokens.empty());
    CHECK(read.late_tokens == folder.tokenizer().late_tokens);
    std::size_t both = 0;
    REQUIRE(read.greedy_tokens.size() == folder.tokenizer().greedy_tokens.size());
    for (const GreedyToken& token : folder.tokenizer().greedy_tokens) {
        for (const GreedyToken& other : read.greedy_tokens) {
            if (other.token != token.token) continue;
            CHECK(other.before == token.before);
            CHECK(other.after == token.after);
            both += token.before && token.after ? 1 : 0;
        }
    }
    CHECK(both == 2);  // the folder's <pad> too
}

TEST_CASE("further chat templates of a folder are in the converted file") {
    const FolderCopy copy{"llama-untied-f16"};
    std::filesystem::create_directory(copy.file("additional_chat_templates"));
    copy.write("additional_chat_templates/tool_use.jinja", "tools: {{ tools | length }}");
    const test::TestFolder out;
    const std::string path = (out.path() / "model.gguf").string();
    REQUIRE(converted(copy.opened(), path, {.type = StoredType::BF16}).ok());
    const ModelFile gguf = opened(path);
    REQUIRE(gguf.contents().parts.chat.more.size() == 1);
    CHECK(gguf.contents().parts.chat.more[0].first == "tool_use");
    CHECK(gguf.contents().parts.chat.more[0].second == "tools: {{ tools | length }}");
}

TEST_CASE("chat templates of one name, or of none, are refused by name") {
    for (const char* name : {"tool_use", ""}) {
        CAPTURE(name);
        const FolderCopy copy{"llama-untied-f16"};
        nlohmann::json config = copy.json("tokenizer_config.json");
        const nlohmann::json entry = {{"name", name}, {"template", "x"}};
        config["chat_template"] = nlohmann::json::array({entry, entry});
        copy.write("tokenizer_config.json", config.dump());
        copy.remove("chat_template.jinja");
        const Result<ModelFile> folder = copy.open();
        if (!folder) {
            CHECK(folder.error().code == Errc::BadFile);
            continue;
        }
        const test::TestFolder out;
        const Status done = converted(folder.value(), (out.path() / "model.gguf").string(), {});
        REQUIRE_FALSE(done.ok());
        CHECK(done.error().code == Errc::BadFile);
        CHECK(contains(done.error().what, "a chat template"));
        CHECK(std::filesystem::is_empty(out.path()));
    }
}

TEST_CASE(
    "a converted Phi-3 has the matrices, lists and keys of GGUF files, and its long context") {
    const test::TestFolder out;
    const std::string path = (out.path() / "model.gguf").string();
    const auto names_of = [](const ModelFile& model) {
        const MappedFile& file = model.contents().file;
        const Result<GgufHeader> header = parse_gguf(file.bytes(), file.path());
        REQUIRE(header.ok());
        std::set<std::string> names;
        for (const GgufTensorInfo& tensor : header.value().tensors) names.emplace(tensor.name);
        return names;
    };
    ModelFile folder = opened(folder_fixture("phi3-f16"));
    ModelFile wide = open_fixture("phi3-f16");
    REQUIRE(converted(folder, path, {.type = StoredType::BF16}).ok());
    ModelFile gguf = opened(path);
    CHECK(gguf.contents().parts.architecture == "phi3");
    const std::set<std::string> names = names_of(gguf);
    CHECK(names == names_of(wide));
    CHECK(names.contains("blk.0.attn_qkv.weight"));
    CHECK(names.contains("rope_factors_long.weight"));
    CHECK_FALSE(names.contains("blk.0.ffn_gate.weight"));
    for (ModelFile* model : {&folder, &gguf, &wide}) {
        CHECK(model->config().context_length == 96);
        model->choose_rope(200);
        CHECK(model->config().context_length == 256);
    }
    check_same_config(folder.config(), gguf.config());
    CHECK(gguf.config().rope.factors == wide.config().rope.factors);
    CHECK(same_bits(logits_of(gguf, Dtype::BF16), logits_of(folder, Dtype::BF16)));
}

TEST_CASE("the same source gives the same bytes, with one thread or with several") {
    const test::TestFolder out;
    const ModelFile folder = opened(folder_fixture("llama3-bf16"));
    std::vector<std::string> files;
    for (const int threads : {1, 3}) {
        const std::string path = (out.path() / "model.gguf").string();
        REQUIRE(converted(folder, path, {.type = StoredType::Q4_1, .threads = threads}).ok());
        files.push_back(text_of(path));
    }
    CHECK(files[0] == files[1]);
}

TEST_CASE(
    "a GGUF file in F32, F16 or BF16 is converted with its keys, and gives its own bits packed on "
    "load") {
    const test::TestFolder out;
    for (const char* name : {"llama-f32", "llama-untied-f16", "llama3-bf16", "qwen3-bf16",
                             "llama-yarn-f16", "phi3-f16"}) {
        CAPTURE(name);
        const ModelFile source = open_fixture(name);
        const std::string path = (out.path() / "model.gguf").string();
        for (const Packing& packing : kPackings) {
            REQUIRE(converted(source, path, {.type = packing.type}).ok());
            const ModelFile gguf = opened(path);
            check_same_config(source.config(), gguf.config());
            CHECK(source.tokenizer().merges == gguf.tokenizer().merges);
            // Rows that are no whole number of blocks stay wide.
            const Dtype read_as = gguf.config().ffn_dim % 32 == 0 ? Dtype::Auto : packing.dtype;
            CHECK(same_bits(logits_of(gguf, read_as), logits_of(source, packing.dtype)));
        }
    }
}

TEST_CASE(
    "under 4 bits embedding and head are Q8_0, norms are F32, and Q4_0 is read as it was written") {
    const test::TestFolder out;
    const ModelFile folder = opened(folder_fixture("llama-untied-f16"));
    const std::string path = (out.path() / "model.gguf").string();
    REQUIRE(converted(folder, path, {.type = StoredType::Q4_0}).ok());
    const ModelFile gguf = opened(path);
    CHECK(gguf.embedding().type == StoredType::Q8_0);
    CHECK(gguf.output_head().type == StoredType::Q8_0);
    CHECK(gguf.layer(0).q.type == StoredType::Q4_0);
    CHECK(gguf.layer(1).ffn_norm.type == StoredType::F32);
    std::vector<float> wide(static_cast<std::size_t>(gguf.layer(0).k.cols));
    std::vector<float> packed(wide.size());
    for (std::int64_t row = 0; row < gguf.layer(0).k.rows; ++row) {
        dequantize_row(folder.layer(0).k, row, wide);
        dequantize_row(gguf.layer(0).k, row, packed);
        for (std::size_t i = 0; i < wide.size(); ++i)
            CHECK(packed[i] == doctest::Approx(wide[i]).epsilon(0.2));
    }
    const TensorView odd{.name = "odd", .type = StoredType::BF16, .rows = 4, .cols = 48};
    CHECK(converted_type(odd, false, StoredType::Q4_1) == StoredType::BF16);
    CHECK(converted_type(odd, false, StoredType::BF16) == StoredType::BF16);
}

TEST_CASE("what cannot be converted is named, and nothing is left of it") {
    const test::TestFolder out;
    const std::string path = (out.path() / "model.gguf").string();
    const Status packed = converted(open_fixture("llama-q4_1"), path, {.type = StoredType::Q8_0});
    REQUIRE_FALSE(packed.ok());
    CHECK(packed.error().code == Errc::Unsupported);
    CHECK(contains(packed.error().what, "is packed already (Q8_0)"));

    const FolderCopy copy{"llama-dynamic-f32"};
    std::string weights = text_of(copy.file("model.safetensors"));
    std::size_t end = 0;
    {
        const ModelFile whole = copy.opened();
        end = end_of(whole, whole.layer(1).down);
    }
    const float infinite = std::numeric_limits<float>::infinity();
    std::memcpy(weights.data() + end - sizeof infinite, &infinite, sizeof infinite);
    copy.write("model.safetensors", weights);
    const Status odd = converted(copy.opened(), path, {.type = StoredType::Q8_0});
    REQUIRE_FALSE(odd.ok());
    CHECK(odd.error().code == Errc::BadFile);
    CHECK(contains(odd.error().what, "blk.1.ffn_down.weight"));
    CHECK(contains(odd.error().what, "in row 31"));

    const ConvertOptions stopped{.type = StoredType::Q8_0, .stopped = [] { return true; }};
    CHECK(converted(open_fixture("llama-f32"), path, stopped).error().code == Errc::Cancelled);
    CHECK(std::filesystem::is_empty(out.path()));
}

TEST_CASE(
    "a folder reads its matrices from a copy: the same bits, its own fingerprint and tensors") {
    const test::TestFolder out;
    for (const char* name : kFolders) {
        CAPTURE(name);
        const ModelFile plain = opened(folder_fixture(name));
        for (const Packing& packing : {kPackings[0], kPackings[1]}) {
            const std::string path = (out.path() / "copy.gguf").string();
            const ConvertOptions how{.type = packing.type, .weights_only = true};
            REQUIRE(converted(plain, path, how, true).ok());
            ModelFile folder = opened(folder_fixture(name));
            const Status used = use_copy(folder, path, packing.type);
            REQUIRE_MESSAGE(used.ok(), (used.ok() ? "" : used.error().what));
            CHECK(folder.copy_path() == path);
            CHECK(folder.layer(0).q.type == packing.type);
            CHECK(folder.fingerprint() == plain.fingerprint());
            CHECK(folder.tensors().front().type == plain.tensors().front().type);
            CHECK(same_bits(logits_of(folder, packing.dtype), logits_of(plain, packing.dtype)));
            CHECK(folder.check_unchanged().ok());
        }
    }
}

TEST_CASE(
    "a copy with any byte changed, cut short, or of another model is refused, and the folder stays "
    "as it was") {
    const test::TestFolder out;
    const std::string path = (out.path() / "copy.gguf").string();
    ModelFile folder = opened(folder_fixture("qwen3-bf16"));
    REQUIRE(converted(folder, path, {.type = StoredType::Q8_0}, true).ok());
    const std::string whole = text_of(path);
    const auto refused = [&](std::string bytes) {
        std::ofstream{path, std::ios::binary | std::ios::trunc} << bytes;
        const Status used = use_copy(folder, path, StoredType::Q8_0);
        CHECK(folder.copy_path().empty());
        return !used.ok() && used.error().code == Errc::BadFile;
    };
    for (std::size_t at = 0; at < whole.size(); at += 997) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ 4);
        CHECK(refused(changed));
    }
    CHECK(refused(whole.substr(0, whole.size() / 2)));
    CHECK(refused(whole.substr(0, whole.size() - 1)));
    CHECK(refused("x"));
    ModelFile other = opened(folder_fixture("llama3-bf16"));
    std::ofstream{path, std::ios::binary | std::ios::trunc} << whole;
    CHECK_FALSE(use_copy(other, path, StoredType::Q8_0).ok());
    CHECK_FALSE(use_copy(folder, path, StoredType::Q4_1).ok());
    CHECK(use_copy(folder, path, StoredType::Q8_0).ok());
}

}  // namespace paceline::testing
