// Folders of every architecture and rope kind against transformers, and against the GGUF file of
// the same weights.
#include <doctest/doctest.h>

#include "model/tokenizer/chat_template.hpp"
#include "model/weights/model_parts.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/support/parity.hpp"
#include "tests/unit/cpu/cpu_traits.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"
#include "tests/unit/reference/reference_traits.hpp"

namespace paceline::testing {
namespace {

/// Folders that a GGUF fixture has the weights of, bit by bit.
constexpr const char* kWithGguf[] = {"llama-untied-f16", "llama-linear-bf16", "llama-yarn-f16",
                                     "llama3-bf16",      "qwen2-f16",         "qwen3-bf16",
                                     "llama-bias-f16",   "phi3-f16"};
/// Those with golden logits of their own.
constexpr const char* kOwn[] = {"llama-dynamic-f32", "mistral-window-bf16", "qwen2-yarn-keys-f32",
                                "llama-yarn-attention-f16"};

ModelFile open_folder(const std::string& name) {
    Result<ModelFile> file = ModelFile::open(folder_fixture(name));
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().what));
    return std::move(file).value();
}

template <class Traits>
void check_golden(const ModelFile& file, const Golden& golden, Dtype dtype = Dtype::F32) {
    const auto backend = Traits::make(file, {.dtype = dtype, .kv = KvType::F32});
    const std::vector<float> logits =
        sequence_logits(*backend, golden.tokens, static_cast<int>(golden.tokens.size()));
    const Deviation worst = deviation(logits, golden.logits, golden.vocab_size);
    CAPTURE(worst.row);
    CHECK(worst.relative < Traits::kGoldenTolerance);
    CHECK(argmax_of_rows(logits, golden.vocab_size) == golden.argmax);
}

nlohmann::json notes(const std::string& name) {
    return nlohmann::json::parse(text_of(folder_fixture(name) + ".golden.json"));
}

}  // namespace

TEST_CASE("a folder gives the logits of transformers, on the reference and on the CPU backend") {
    for (const char* name : kOwn) {
        CAPTURE(name);
        const Result<Golden> golden = read_golden(folder_fixture(name));
        REQUIRE(golden.ok());
        const ModelFile file = open_folder(name);
        check_golden<ReferenceTraits>(file, golden.value());
        check_golden<CpuTraits>(file, golden.value());
    }
    for (const char* name : kWithGguf) {
        CAPTURE(name);
        const Golden golden = load_golden(fixtures(), name);
        const ModelFile file = open_folder(name);
        check_golden<ReferenceTraits>(file, golden);
        check_golden<CpuTraits>(file, golden);
    }
}

TEST_CASE("weights in float16 are not rounded: folder and GGUF file give the logits of f32") {
    for (const char* name : kWithGguf) {
        if (!std::string_view{name}.ends_with("-f16")) continue;
        CAPTURE(name);
        const Golden golden = load_golden(fixtures(), name);
        for (const ModelFile& file : {open_folder(name), open_fixture(name)}) {
            for (const TensorView& tensor : file.tensors()) {
                if (tensor.rows > 1) CHECK(tensor.type == StoredType::F16);
            }
            check_golden<CpuTraits>(file, golden, Dtype::Auto);
        }
    }
}

TEST_CASE("a folder and the GGUF file of the same weights give the same bits, packed in any way") {
    for (const char* name : kWithGguf) {
        CAPTURE(name);
        const ModelFile folder = open_folder(name);
        const ModelFile gguf = open_fixture(name);
        const std::vector<TokenId> tokens = load_golden(fixtures(), name).tokens;
        for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4}) {
            CAPTURE(paceline::name(dtype));
            const auto ours = CpuTraits::make(folder, {.dtype = dtype});
            const auto theirs = CpuTraits::make(gguf, {.dtype = dtype});
            CHECK(
                same_bits(sequence_logits(*ours, tokens, 8), sequence_logits(*theirs, tokens, 8)));
        }
        const auto ours = ReferenceTraits::make(folder, {});
        const auto theirs = ReferenceTraits::make(gguf, {});
        CHECK(same_bits(sequence_logits(*ours, tokens, 8), sequence_logits(*theirs, tokens, 8)));
    }
}

TEST_CASE("beyond the original context of longrope the logits are those of its other list") {
    const nlohmann::json text = notes("phi3-f16").at("long_text");
    const auto tokens = text.at("tokens").get<std::vector<TokenId>>();
    const auto wanted = text.at("logits").get<std::vector<float>>();
    ModelFile file = open_folder("phi3-f16");
    REQUIRE(tokens.size() > 96);
    file.choose_rope(96);
    CHECK(file.config().context_length == 96);
    file.choose_rope(97);
    CHECK(file.config().context_length == 256);
    const int vocab_size = file.config().vocab_size;
    const auto last_rows = [&](const std::vector<float>& logits) {
        return std::vector<float>(logits.end() - std::ssize(wanted), logits.end());
    };
    const auto reference = ReferenceTraits::make(file, {.dtype = Dtype::F32, .kv = KvType::F32});
    const auto cpu = CpuTraits::make(file, {.dtype = Dtype::F32, .kv = KvType::F32});
    const std::vector<float> slow = last_rows(sequence_logits(*reference, tokens, 16));
    const std::vector<float> fast = last_rows(sequence_logits(*cpu, tokens, 16));
    CHECK(deviation(slow, wanted, vocab_size).relative < ReferenceTraits::kGoldenTolerance);
    CHECK(deviation(fast, wanted, vocab_size).relative < CpuTraits::kGoldenTolerance);
    const ModelFile first = open_folder("phi3-f16");
    const auto other = CpuTraits::make(first, {.dtype = Dtype::F32, .kv = KvType::F32});
    CHECK(deviation(last_rows(sequence_logits(*other, tokens, 16)), wanted, vocab_size).relative >
          0.01);
    // A model without lists stays as it is.
    ModelFile plain = open_folder("llama3-bf16");
    const int context = plain.config().context_length;
    plain.choose_rope(2 * context);
    CHECK(plain.config().context_length == context);
}

TEST_CASE("the ids of a text, with what begins it, are those of transformers' AutoTokenizer") {
    std::size_t texts = 0;
    for (const char* name : {"llama-untied-f16", "llama-linear-bf16", "llama3-bf16", "qwen2-f16",
                             "mistral-window-bf16", "llama-yarn-attention-f16"}) {
        CAPTURE(name);
        const ModelFile file = open_folder(name);
        const Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
        REQUIRE_MESSAGE(tokenizer.ok(), (tokenizer.ok() ? "" : tokenizer.error().what));
        const nlohmann::json texts_of_folder = notes(name).at("texts");
        for (const nlohmann::json& text : texts_of_folder) {
            CAPTURE(text.dump());
            std::vector<TokenId> ids;
            if (const auto bos = tokenizer.value().prompt_bos()) ids.push_back(*bos);
            const auto rest =
                tokenizer.value().encode(text[0].get<std::string>(), SpecialTokens::Parse);
            ids.insert(ids.end(), rest.begin(), rest.end());
            CHECK(ids == text[1].get<std::vector<TokenId>>());
            ++texts;
        }
    }
    CHECK(texts >= 40);
}

TEST_CASE("a chat template is found in each of its places") {
    for (const char* name :
         {"llama-untied-f16", "llama-linear-bf16", "llama-yarn-f16", "llama3-bf16"}) {
        CAPTURE(name);
        CHECK(open_folder(name).tokenizer().chat_template ==
              open_fixture("tiny-chat").tokenizer().chat_template);
    }
    CHECK(open_folder("qwen2-f16").tokenizer().chat_template.empty());
}

TEST_CASE("further chat templates come from a list, or from files beside chat_template.jinja") {
    using Named = std::vector<std::pair<std::string, std::string>>;
    const auto more = [](const ModelFile& file) { return file.contents().parts.chat.more; };
    CHECK(more(open_folder("llama-linear-bf16")) == Named{{"tool_use", "tools"}});
    CHECK(more(open_folder("llama3-bf16")).empty());
    const FolderCopy copy("llama-linear-bf16");
    std::filesystem::create_directory(copy.file("additional_chat_templates"));
    copy.write("additional_chat_templates/tool_use.jinja", "with {{ tools }}");
    copy.write("additional_chat_templates/rag.jinja", "with {{ documents }}");
    copy.write("additional_chat_templates/notes.txt", "no template");
    copy.write("chat_template.jinja", "plain");
    const ModelFile file = copy.opened();
    CHECK(file.tokenizer().chat_template == "plain");
    CHECK(more(file) == Named{{"rag", "with {{ documents }}"}, {"tool_use", "with {{ tools }}"}});
    const ChatTemplate chat =
        ChatTemplate::make(file.tokenizer(), file.contents().parts.chat).value();
    CHECK(chat.render_json("[]", "", jinja::LocalTime{}).value().bytes() == "plain");
    CHECK(chat.render_json("[]", "[1]", jinja::LocalTime{}).value().bytes() == "with [1]");
}

TEST_CASE("a folder without a template is told where one would be, not where GGUF files have it") {
    const ModelFile file = open_folder("qwen2-f16");
    const Result<ChatTemplate> chat =
        ChatTemplate::make(file.tokenizer(), file.contents().parts.chat);
    REQUIRE_FALSE(chat.ok());
    CHECK(contains(chat.error().what, "chat_template.jinja"));
    CHECK_FALSE(contains(chat.error().what, "tokenizer.chat_template"));
}

TEST_CASE("generation_config.json ends answers, and offers its sampling") {
    const ModelFile file = open_folder("llama3-bf16");
    CHECK(file.tokenizer().end_tokens == std::vector<TokenId>{2, 0});
    const SamplingDefaults& defaults = file.sampling_defaults();
    CHECK(defaults.stated);
    CHECK(defaults.temperature == 0.6F);
    CHECK(defaults.top_p == 0.95F);
    CHECK(defaults.top_k == 20);
    CHECK_FALSE(open_fixture("llama-f32").sampling_defaults().stated);
}

TEST_CASE("a window cuts the context to what sees every token") {
    CHECK(open_folder("mistral-window-bf16").config().context_length == 48);
    CHECK(open_folder("llama-dynamic-f32").config().context_length == 256);
}

TEST_CASE("a folder says what it is: its files, their bytes and a fingerprint of its own") {
    const ModelFile sharded = open_folder("llama3-bf16");
    CHECK(sharded.format() == "Hugging Face folder");
    CHECK(sharded.config().name == "llama3-bf16");
    CHECK(sharded.path() == folder_fixture("llama3-bf16"));
    CHECK(sharded.file_bytes() > 150'000);
    CHECK(sharded.check_unchanged().ok());
    CHECK(sharded.fingerprint() == open_folder("llama3-bf16").fingerprint());
    CHECK(sharded.fingerprint() == open_folder("llama3-bf16/").fingerprint());
    CHECK(sharded.fingerprint() != open_folder("llama-linear-bf16").fingerprint());
    for (const TensorView& tensor : sharded.tensors()) sharded.release(tensor);
}

}  // namespace paceline::testing
