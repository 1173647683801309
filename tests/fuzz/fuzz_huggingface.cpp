// Fuzzes the JSON of Hugging Face folders: the input is a config.json, an index of shards, a
// tokenizer.json, or the keys of tokenizer_config.json and generation_config.json; or messages of a
// chat. What is accepted keeps its promises to those that trust it: a configuration gives a rope
// table, an index names plain files, a tokenizer encodes text.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/rope_table.hpp"
#include "model/tokenizer/chat_messages.hpp"
#include "model/tokenizer/chat_tools.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/gguf/gguf_model_keys.hpp"
#include "model/weights/gguf/gguf_piece_keys.hpp"
#include "model/weights/gguf/gguf_tokenizer.hpp"
#include "model/weights/huggingface/folder_config.hpp"
#include "model/weights/huggingface/folder_template.hpp"
#include "model/weights/huggingface/folder_tokenizer.hpp"
#include "model/weights/huggingface/generation_config.hpp"
#include "model/weights/huggingface/json_file.hpp"
#include "model/weights/huggingface/shards.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

enum Kind : std::uint8_t { Config, Index, TokenizerJson, Special, Messages, Kinds };

constexpr const char* kRopes[] = {
    R"("rope_theta":10000.0,"rope_scaling":null)",
    R"("rope_theta":1e6,"rope_scaling":{"type":"linear","factor":4.0})",
    R"("rope_parameters":{"rope_type":"dynamic","rope_theta":10000.0,"factor":2.0})",
    R"("rope_parameters":{"rope_type":"yarn","rope_theta":1e4,"factor":4.0,"beta_fast":32,"mscale":1.0,)"
    R"("mscale_all_dim":0.5,"original_max_position_embeddings":64})",
    R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
    R"("original_max_position_embeddings":64})",
    R"("rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,2,2,2,2],"long_factor":[1,2,3,4,5,6,7,8]},)"
    R"("original_max_position_embeddings":64)",
    R"("rope_parameters":{"rope_type":"su","partial_rotary_factor":0.5,"short_factor":[1,1.5,2,3],)"
    R"("long_factor":[2,3,4,5]})"};

constexpr std::pair<const char*, const char*> kClasses[] = {{"LlamaForCausalLM", "llama"},
                                                            {"MistralForCausalLM", "mistral"},
                                                            {"Qwen2ForCausalLM", "qwen2"},
                                                            {"Qwen3ForCausalLM", "qwen3"},
                                                            {"Phi3ForCausalLM", "phi3"}};

std::string config_text(SeededRandom& random) {
    const auto& [class_name, type] = kClasses[random.below(std::size(kClasses))];
    return std::string{R"({"architectures":[")"} + class_name + R"("],"model_type":")" + type +
           R"(","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
           R"("head_dim":16,"intermediate_size":96,"vocab_size":320,"max_position_embeddings":256,)"
           R"("rms_norm_eps":1e-05,"sliding_window":48,"tie_word_embeddings":true,)" +
           kRopes[random.below(std::size(kRopes))] + "}";
}

std::string index_text(SeededRandom& random) {
    std::string text = R"({"metadata":{"total_size":7},"weight_map":{"a":"m-1.safetensors")";
    for (std::uint32_t i = random.below(4); i > 0; --i)
        text += ",\"t" + std::to_string(i) + "\":\"m-" + std::to_string(random.below(2)) +
                ".safetensors\"";
    return text + "}}";
}

constexpr const char* kPreTokenizers[] = {
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})",
    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":false}]})"};

constexpr const char* kPieceNormalizers[] = {
    "null", R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})",
    R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"\u2581"}]})",
    R"({"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"a"},"content":"aa"},)"
    R"({"type":"NFC"},{"type":"Replace","pattern":{"String":"a"},"content":"aa"}]})",
    R"({"type":"NFKC"})"};
constexpr const char* kPieceModels[] = {
    R"({"type":"BPE","unk_token":"a","byte_fallback":true,"fuse_unk":true,"vocab":{"a":0,"\u2581":1,)"
    R"("\u2581a":2,"<0x3C>":5},"merges":[["\u2581","a"]]})",
    R"({"type":"BPE","unk_token":"a","byte_fallback":true,"fuse_unk":false,"vocab":{"a":0,"\u2581":1,)"
    R"("\u2581\u2581":2,"<t>":4,"<0x3C>":5},"merges":[["\u2581","\u2581"]]})",
    R"({"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["a",0],["\u2581",-1.5],["\u2581a",-2]]})"};

/// With a SentencePiece vocabulary.
std::string pieces_text(SeededRandom& random) {
    return std::string{
               R"({"added_tokens":[{"id":3,"content":"<s>","special":true,"normalized":true},)"
               R"({"id":4,"content":"<t>","rstrip":true}],"normalizer":)"} +
           kPieceNormalizers[random.below(std::size(kPieceNormalizers))] +
           R"(,"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":")" +
           (random.below(2) == 0 ? "first" : "always") +
           R"(","split":true},"decoder":{"type":"Sequence","decoders":[{"type":"Replace",)"
           R"("pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
           R"({"type":"Strip","content":" ","start":1,"stop":0}]},"model":)" +
           kPieceModels[random.below(std::size(kPieceModels))] + "}";
}

std::string tokenizer_text(SeededRandom& random) {
    if (random.below(2) == 0) return pieces_text(random);
    const bool pairs = random.below(2) == 0;
    return std::string{R"({"added_tokens":[{"id":3,"content":"<s>","special":true,"lstrip":true},)"
                       R"({"id":4,"content":"<t>","rstrip":true}],"normalizer":{"type":"NFC"},)"
                       R"("pre_tokenizer":)"} +
           kPreTokenizers[random.below(2)] +
           R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
           R"({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[3]}}},"decoder":{"type":"ByteLevel"},)"
           R"("model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2},"merges":[)" +
           (pairs ? R"(["a","b"])" : R"("a b")") + "]}}";
}

constexpr const char* kSpecial =
    R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true,"chat_template":[{"name":)"
    R"("default","template":"x"}],"eos_token_id":[1,2],"do_sample":true,"temperature":0.6,"top_k":20,)"
    R"("top_p":0.9,"min_p":0.1,"repetition_penalty":1.1})";

constexpr const char* kMessages =
    R"([{"role":"user","content":"a","name":null},{"role":"assistant","reasoning":"b","tool_calls":)"
    R"([{"id":"c","function":{"name":"f","arguments":"{\"x\":[1,2.5,null]}"}}]}])";

void check_code(const Error& error) {
    PACE_CHECK(error.code == Errc::BadFile || error.code == Errc::Unsupported,
               "another error than it promises");
}

void read_one_config(std::string_view text) {
    const Result<nlohmann::json> root = huggingface::parse_json_object(text, "fuzz");
    if (!root.ok()) return check_code(root.error());
    Status status;
    huggingface::JsonKeys keys(root.value(), "fuzz", status);
    const Result<huggingface::FolderConfig> read = huggingface::read_config(keys);
    if (!read.ok()) return check_code(read.error());
    const ModelConfig& config = read.value().model;
    PACE_CHECK(config.heads % config.kv_heads == 0 && config.context_length > 0, "its promises");
    const RopeTable rope(config.rope);
    PACE_CHECK(rope.pairs() == config.rope.dims / 2, "a pair for every two dimensions");
    const LongRope& longer = read.value().long_rope;
    PACE_CHECK(longer.context == 0 ||
                   (longer.context >= config.context_length &&
                    longer.factors.size() == static_cast<std::size_t>(config.rope.dims / 2)),
               "another list for longer texts");
    PACE_CHECK(std::isfinite(rope.magnitude()) && rope.magnitude() > 0.0, "a magnitude");
}

void read_one_index(std::string_view text) {
    const Result<huggingface::ShardIndex> read = huggingface::read_shard_index(text, "fuzz");
    if (!read.ok()) return check_code(read.error());
    for (const std::string& file : read.value().files)
        PACE_CHECK(file.find('/') == file.npos && file[0] != '.', "a name of a file beside it");
    for (const auto& [name, place] : read.value().tensors)
        PACE_CHECK(place < read.value().files.size(), "a file of the list");
}

/// What is written as keys of a GGUF file is read back as the same tokenizer.
void check_keys(const TokenizerData& data, const Tokenizer& tokenizer) {
    GgufKeyWriter written;
    if (const Status s = add_tokenizer_keys(data, written); !s) return check_code(s.error());
    const std::vector<std::byte> head = gguf_head(written, {});
    const std::string file = "fuzz";
    const GgufHeader header = parse_gguf(head, file, GgufPart::Shard).value();
    GgufKeys keys{header, file};
    std::vector<std::string> remarks;
    const Result<TokenizerData> again =
        paceline::read_tokenizer(keys, static_cast<int>(data.tokens.size()), remarks);
    PACE_CHECK(again.ok(), "keys that Paceline has written");
    const Result<Tokenizer> made = Tokenizer::make(again.value());
    PACE_CHECK(made.ok(), "a tokenizer of keys that Paceline has written");
    for (const char* text : {"ab <s> ab<t> 12", "\u00BD a  <0x3C>\u2581a"}) {
        PACE_CHECK(made.value().encode(text, SpecialTokens::Parse) ==
                       tokenizer.encode(text, SpecialTokens::Parse),
                   "the same tokens");
    }
}

void read_one_tokenizer(std::string_view text) {
    constexpr int kVocabulary = 8;
    Result<huggingface::FolderTokenizer> read =
        huggingface::read_tokenizer(text, "fuzz", kVocabulary);
    if (!read.ok()) return check_code(read.error());
    const Result<Tokenizer> made = Tokenizer::make(read.value().data);
    if (!made.ok()) return check_code(made.error());
    const auto check = [](const std::vector<TokenId>& tokens) {
        for (const TokenId token : tokens)
            PACE_CHECK(token >= 0 && token < kVocabulary, "a token of the vocabulary");
    };
    check(made.value().encode("ab <s> ab<t> 12", SpecialTokens::Parse));
    check(made.value().encode_marked("e\u0301 <s> ab <t> 12", "uuututtuuututtttt"));
    if (has_pieces(read.value().data)) check_keys(read.value().data, made.value());
}

void read_special(std::string_view text) {
    constexpr int kVocabulary = 8;
    const Result<nlohmann::json> root = huggingface::parse_json_object(text, "fuzz");
    if (!root.ok()) return check_code(root.error());
    Status status;
    huggingface::JsonKeys keys(root.value(), "fuzz", status);
    huggingface::FolderTokenizer tokenizer;
    tokenizer.data.tokens = {"<s>", "</s>"};
    huggingface::add_tokenizer_config(keys, tokenizer);
    std::vector<std::string> remarks;
    huggingface::add_end_tokens(keys, kVocabulary, tokenizer.data, remarks);
    const SamplingDefaults sampling = huggingface::read_sampling_defaults(keys);
    if (!status) return check_code(status.error());
    for (const TokenId token : tokenizer.data.end_tokens)
        PACE_CHECK(token >= 0 && token < kVocabulary, "a token of the vocabulary");
    PACE_CHECK(!sampling.temperature || std::isfinite(*sampling.temperature), "a temperature");
    const auto chat = huggingface::read_chat_templates("/nowhere", keys);
    if (!chat.ok()) check_code(chat.error());
}

void read_messages(std::string_view text) {
    const Status tools = check_chat_tools(text);
    PACE_CHECK(tools.ok() || tools.error().code == Errc::BadFile, "another error of tools");
    jinja::Heap heap;
    const Result<jinja::Value> messages = chat_messages(heap, text);
    if (!messages.ok()) {
        PACE_CHECK(messages.error().code == Errc::BadArgument, "another error than it promises");
        return;
    }
    for (const jinja::Value& message : messages.value().list().items) {
        for (const auto& [key, value] : message.dict().items)
            PACE_CHECK(!value.is(jinja::Kind::None), "a key that is null");
    }
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    const auto kind = static_cast<std::uint8_t>(random.below(Kinds));
    const std::string text = kind == Config     ? config_text(random)
                             : kind == Index    ? index_text(random)
                             : kind == Special  ? std::string{kSpecial}
                             : kind == Messages ? std::string{kMessages}
                                                : tokenizer_text(random);
    FuzzBytes input(1 + text.size(), kind);
    std::copy(text.begin(), text.end(), input.begin() + 1);
    return input;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view text{reinterpret_cast<const char*>(data + 1), size - 1};
    switch (data[0] % Kinds) {
        case Config:
            read_one_config(text);
            break;
        case Index:
            read_one_index(text);
            break;
        case Special:
            read_special(text);
            break;
        case Messages:
            read_messages(text);
            break;
        default:
            read_one_tokenizer(text);
    }
    return 0;
}
