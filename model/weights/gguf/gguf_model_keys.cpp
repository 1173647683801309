#include "model/weights/gguf/gguf_model_keys.hpp"

#include <cstdint>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/gguf/gguf_piece_keys.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr const char* kPhi3 = "phi3";

void add_rope_keys(const ModelConfig& config, const std::string& arch, GgufKeyWriter& keys) {
    const RopeConfig& rope = config.rope;
    keys.add_f32(arch + ".rope.freq_base", rope.base);
    // Converters write it for these families alone; for the others it is the width of a head.
    if (rope.pairing == RopePairing::Adjacent || arch == kPhi3)
        keys.add_u32(arch + ".rope.dimension_count", static_cast<std::uint64_t>(rope.dims));
    const std::string scaling = arch + ".rope.scaling.";
    if (rope.scaling == RopeScaling::Linear) {
        keys.add_text(scaling + "type", "linear");
        keys.add_f32(scaling + "factor", rope.factor);
    }
    if (rope.scaling == RopeScaling::Factors && arch == kPhi3) {
        // Factors of llama3 scaling count in the whole context.
        const int original =
            rope.original_context > 0 ? rope.original_context : config.context_length;
        keys.add_u32(scaling + "original_context_length", static_cast<std::uint64_t>(original));
        keys.add_f32(scaling + "attn_factor", rope.attention_factor);
    }
    if (rope.scaling != RopeScaling::Yarn) return;
    keys.add_text(scaling + "type", "yarn");
    keys.add_f32(scaling + "factor", rope.factor);
    keys.add_u32(scaling + "original_context_length",
                 static_cast<std::uint64_t>(rope.original_context));
    keys.add_f32(scaling + "yarn_beta_fast", rope.beta_fast);
    keys.add_f32(scaling + "yarn_beta_slow", rope.beta_slow);
    if (rope.attention_factor != 0.0F)
        keys.add_f32(scaling + "yarn_attn_factor", rope.attention_factor);
}

std::vector<std::int32_t> ids_of(const std::vector<TokenId>& tokens) {
    std::vector<std::int32_t> ids;
    for (const TokenId token : tokens) ids.push_back(static_cast<std::int32_t>(token));
    return ids;
}

void add_special_ids(const TokenizerData& data, GgufKeyWriter& keys) {
    const std::pair<const char*, std::optional<TokenId>> named[] = {
        {"bos", data.bos}, {"eos", data.eos},         {"eot", data.eot},
        {"eom", data.eom}, {"unknown", data.unknown}, {"padding", data.padding}};
    for (const auto& [name, token] : named) {
        if (token)
            keys.add_u32(fmt::format("tokenizer.ggml.{}_token_id", name),
                         static_cast<std::uint64_t>(*token));
    }
    keys.add_bool("tokenizer.ggml.add_bos_token", data.add_bos);
    // Of "t5" other programs take a missing one for true.
    if (data.add_eos || data.model == "unigram")
        keys.add_bool("tokenizer.ggml.add_eos_token", data.add_eos);
}

void add_own_keys(const TokenizerData& data, GgufKeyWriter& keys) {
    if (!data.end_tokens.empty()) keys.add_i32s(kEndTokensKey, ids_of(data.end_tokens));
    std::vector<TokenId> left, right;
    for (const GreedyToken& greedy : data.greedy_tokens) {
        if (greedy.before) left.push_back(greedy.token);
        if (greedy.after) right.push_back(greedy.token);
    }
    if (!left.empty()) keys.add_i32s(kStripLeftKey, ids_of(left));
    if (!right.empty()) keys.add_i32s(kStripRightKey, ids_of(right));
    if (!data.late_tokens.empty()) keys.add_i32s(kLateTokensKey, ids_of(data.late_tokens));
    if (data.whole_words) keys.add_bool(kWholeWordsKey, *data.whole_words);
    if (data.normal_form_c) keys.add_bool(kNormalFormKey, *data.normal_form_c);
}

constexpr std::size_t kTemplateNameMax = 256;

Status check_template(const std::string& text) {
    if (text.size() <= kGgufStringBytesMax) return {};
    return Error{Errc::BadFile,
                 fmt::format("the chat template has {} bytes; a GGUF file may have {}", text.size(),
                             kGgufStringBytesMax)};
}

}  // namespace

bool is_phi3(const ModelConfig& config) {
    return config.architecture == Architecture::Llama && config.rope.pairing == RopePairing::Halves;
}

void add_config_keys(const ModelConfig& config, int context, GgufKeyWriter& keys) {
    const std::string arch = is_phi3(config) ? kPhi3 : name_of(config.architecture);
    const auto add = [&](const char* suffix, int number) {
        keys.add_u32(arch + suffix, static_cast<std::uint64_t>(number));
    };
    keys.add_text("general.architecture", arch);
    keys.add_text("general.type", "model");
    if (!config.name.empty()) keys.add_text("general.name", config.name);
    add(".block_count", config.layers);
    add(".context_length", context);
    add(".embedding_length", config.dim);
    add(".feed_forward_length", config.ffn_dim);
    add(".attention.head_count", config.heads);
    add(".attention.head_count_kv", config.kv_heads);
    add(".attention.key_length", config.head_dim);
    add(".attention.value_length", config.head_dim);
    keys.add_f32(arch + ".attention.layer_norm_rms_epsilon", config.norm_epsilon);
    add(".vocab_size", config.vocab_size);
    add_rope_keys(config, arch, keys);
}

Status add_tokenizer_keys(const TokenizerData& data, GgufKeyWriter& keys) {
    if (!data.refusal.empty()) return Error{Errc::Unsupported, data.refusal};
    PACE_CHECK(data.model == "gpt2" || has_pieces(data), "a tokenizer without a refusal");
    if (Status s = check_template(data.chat_template); !s) return s;
    if (has_pieces(data)) {
        if (Status s = add_piece_keys(data, keys); !s) return s;
    } else {
        keys.add_text("tokenizer.ggml.model", data.model);
        keys.add_text("tokenizer.ggml.pre", data.pre);
    }
    keys.add_texts("tokenizer.ggml.tokens", data.tokens);
    std::vector<std::int32_t> kinds;
    for (const TokenKind kind : data.kinds) kinds.push_back(static_cast<std::int32_t>(kind));
    keys.add_i32s("tokenizer.ggml.token_type", kinds);
    if (!data.merges.empty()) keys.add_texts("tokenizer.ggml.merges", data.merges);
    add_special_ids(data, keys);
    if (!data.chat_template.empty()) keys.add_text("tokenizer.chat_template", data.chat_template);
    add_own_keys(data, keys);
    return {};
}

Status add_chat_templates(const ChatSources& chat, GgufKeyWriter& keys) {
    if (chat.more.empty()) return {};
    std::vector<std::string> names;
    for (const auto& [name, text] : chat.more) {
        const std::string key = "tokenizer.chat_template." + name;
        if (name.empty() || name.size() > kTemplateNameMax || keys.has(key)) {
            const char* wrong = name.empty()                     ? "has no name"
                                : name.size() > kTemplateNameMax ? "has a name that is too long"
                                                                 : "is there twice";
            return Error{Errc::BadFile,
                         fmt::format("a chat template ({}) {}", quoted_text(name), wrong)};
        }
        if (Status s = check_template(text); !s) return s;
        names.push_back(name);
        keys.add_text(key, text);
    }
    keys.add_texts("tokenizer.chat_templates", names);
    return {};
}

}  // namespace paceline
