#include "model/weights/gguf/gguf_config.hpp"

#include <cmath>
#include <fmt/core.h>
#include <string>

#include "model/weights/config_limits.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

using namespace config_limits;  // NOLINT(google-build-using-namespace): constants alone

struct ArchitectureRow {
    const char* name;  // general.architecture
    Architecture architecture;
    RopePairing pairing;
    bool qkv_bias;  // always there; where false, the tensors decide
    bool qk_norm;
    bool longrope;  // may have two lists of rope factors, and their magnitude
};
constexpr ArchitectureRow kArchitectures[] = {
    {"llama", Architecture::Llama, RopePairing::Adjacent, false, false, false},
    {"qwen2", Architecture::Qwen2, RopePairing::Halves, true, false, false},
    {"qwen3", Architecture::Qwen3, RopePairing::Halves, false, true, false},
    {"phi3", Architecture::Llama, RopePairing::Halves, false, false, true},
};

/// A key that changes the arithmetic unless it has its neutral value.
struct NeutralKey {
    const char* suffix;
    double neutral;
    const char* what;
};
constexpr NeutralKey kNeutralFloats[] = {
    {".attention.scale", 0, "a custom attention scale"},
    {".attention.temperature_scale", 0, "attention temperature scaling"},
    {".attention.clamp_kqv", 0, "clamped q, k and v"},
    {".attention.max_alibi_bias", 0, "ALiBi attention bias"},
    {".attn_logit_softcapping", 0, "attention soft-capping"},
    {".final_logit_softcapping", 0, "logit soft-capping"},
    {".logit_scale", 1, "scaled logits"},
    {".embedding_scale", 1, "scaled embeddings"},
    {".residual_scale", 1, "scaled residuals"},
    {".rope.scaling.yarn_ext_factor", 1, "a yarn extrapolation factor"},
    {".rope.scaling.yarn_log_multiplier", 0, "a yarn log multiplier"},
};
constexpr NeutralKey kNeutralInts[] = {
    {".expert_count", 0, "a mixture of experts"},
    {".nextn_predict_layers", 0, "next-token prediction layers"},
};

void refuse(GgufKeys& keys, const std::string& what) {
    keys.fail(Errc::Unsupported, what);
}

void refuse_what_is_no_switch(GgufKeys& keys, const std::string& arch) {
    constexpr double kAny = 1e30;
    for (const NeutralKey& key : kNeutralFloats) {
        const std::string name = arch + key.suffix;
        const auto value = keys.find_float(name, {-kAny, kAny});
        if (value && static_cast<double>(*value) != key.neutral) {
            refuse(keys, std::string(key.what) + " (" + name + " = " +
                             number_text(static_cast<double>(*value)) + ") is not supported");
        }
    }
    for (const NeutralKey& key : kNeutralInts) {
        const std::string name = arch + key.suffix;
        const auto value = keys.find_int(name, {0, INT32_MAX});
        if (value && static_cast<double>(*value) != key.neutral) {
            refuse(keys, fmt::format("{} ({} = {}) is not supported", key.what, name, *value));
        }
    }
    if (!keys.bool_or(arch + ".attention.causal", true)) {
        refuse(keys, arch + ".attention.causal is false; only causal attention is supported");
    }
}

void read_widths(GgufKeys& keys, const std::string& arch, ModelConfig& config) {
    config.layers = keys.required_int(arch + ".block_count", {1, kLayersMax});
    config.dim = keys.required_int(arch + ".embedding_length", {1, kDimMax});
    config.heads = keys.required_int(arch + ".attention.head_count", {1, kHeadsMax});
    config.kv_heads = keys.int_or(arch + ".attention.head_count_kv", config.heads, {1, kHeadsMax});
    config.ffn_dim = keys.required_int(arch + ".feed_forward_length", {1, kFfnDimMax});
    config.context_length = keys.required_int(arch + ".context_length", {1, kContextMax});
    config.vocab_size = keys.int_or(arch + ".vocab_size", 0, {1, kVocabMax});
    config.norm_epsilon =
        keys.required_float(arch + ".attention.layer_norm_rms_epsilon", {1e-12, 0.1});
    if (config.heads % config.kv_heads != 0) {
        keys.fail(Errc::BadFile,
                  fmt::format("{}.attention.head_count {} is no multiple of head_count_kv {}", arch,
                              config.heads, config.kv_heads));
    }
}

void read_head_dim(GgufKeys& keys, const std::string& arch, ModelConfig& config) {
    const std::string key = arch + ".attention.key_length";
    const std::string value = arch + ".attention.value_length";
    const int derived = config.dim % config.heads == 0 ? config.dim / config.heads : 0;
    config.head_dim = keys.int_or(key, derived, {1, kHeadDimMax});
    const int value_length = keys.int_or(value, derived, {1, kHeadDimMax});
    if (config.head_dim == 0) {
        keys.fail(
            Errc::BadFile,
            fmt::format("{}.embedding_length {} is no multiple of head_count {}, and {} is missing",
                        arch, config.dim, config.heads, key));
    } else if (config.head_dim > kHeadDimMax) {
        keys.fail(Errc::BadFile, fmt::format("heads of {} dimensions; at most {} are possible",
                                             config.head_dim, kHeadDimMax));
    } else if (value_length != config.head_dim) {
        refuse(keys, fmt::format("{} {} differs from {} {}, which is not supported", key,
                                 config.head_dim, value, value_length));
    }
}

/// The shape of Mistral 7B v0.1 and its descendants, whose converter does not write the window of
/// 4096 tokens; v0.2 and later have another base, and no window.
bool is_mistral_with_window(const ModelConfig& config, float rope_base) {
    return config.architecture == Architecture::Llama && config.layers == 32 &&
           config.dim == 4096 && config.heads == 32 && config.kv_heads == 8 &&
           config.ffn_dim == 14336 && config.context_length == 32768 && rope_base == 10000.0F;
}

/// Layers that see only the last tokens. A context within the window is the same without it, so the
/// model's context is cut to it.
void read_window(GgufKeys& keys,
                 const std::string& arch,
                 ModelConfig& config,
                 std::vector<std::string>& remarks) {
    constexpr int kMistralWindow = 4096;
    const std::string key = arch + ".attention.sliding_window";
    const auto stated = keys.find_int(key, {0, INT32_MAX});
    std::int64_t window = stated.value_or(0);
    std::string why = fmt::format("layers see the last {} tokens ({})", window, key);
    if (!stated && is_mistral_with_window(config, config.rope.base)) {
        window = kMistralWindow;
        why = fmt::format(
            "this is the shape of Mistral 7B v0.1, whose layers see the last {} "
            "tokens; GGUF files of it do not say so",
            window);
    }
    if (window == 0 || window >= config.context_length) return;
    remarks.push_back(
        fmt::format("the context is {} of {} tokens: {}", window, config.context_length, why));
    config.context_length = static_cast<int>(window);
}

void read_yarn(GgufKeys& keys, const std::string& prefix, ModelConfig& config) {
    RopeConfig& rope = config.rope;
    rope.original_context =
        keys.int_or(prefix + "original_context_length", config.context_length, {1, kContextMax});
    rope.beta_fast = keys.float_or(prefix + "yarn_beta_fast", 32.0F, {1e-3, 1e6});
    rope.beta_slow = keys.float_or(prefix + "yarn_beta_slow", 1.0F, {1e-3, 1e6});
    // Converters write HF's attention_factor, which stands for yarn's own formula, as
    // yarn_attn_factor.
    const float own = 0.1F * std::log(rope.factor) + 1.0F;
    const float magnitude = keys.float_or(prefix + "attn_factor", 1.0F, {1e-3, 1e3}) *
                            keys.float_or(prefix + "yarn_attn_factor", own, {1e-3, 1e3});
    // One that is stated counts as it stands: the formula is computed with more digits than a float
    // has.
    if (keys.has(prefix + "yarn_attn_factor") || magnitude != own)
        rope.attention_factor = magnitude;
}

/// Of the lists of factors, which are tensors (gguf_tensors.cpp).
void read_longrope(GgufKeys& keys, const std::string& prefix, ModelConfig& config) {
    config.rope.original_context =
        keys.int_or(prefix + "original_context_length", config.context_length, {1, kContextMax});
    config.rope.attention_factor = keys.float_or(prefix + "attn_factor", 1.0F, {1e-3, 1e3});
}

void read_scaling(GgufKeys& keys, const ArchitectureRow& row, ModelConfig& config) {
    const std::string arch = row.name;
    const std::string prefix = arch + ".rope.scaling.";
    const float legacy = keys.float_or(arch + ".rope.scale_linear", 1.0F, {1, kRopeFactorMax});
    config.rope.factor = keys.float_or(prefix + "factor", legacy, {0, kRopeFactorMax});
    if (config.rope.factor == 0.0F) config.rope.factor = 1.0F;  // written where there is none
    if (config.rope.factor < 1.0F) {
        keys.fail(Errc::BadFile, prefix + "factor is " +
                                     number_text(static_cast<double>(config.rope.factor)) +
                                     "; it must be at least 1");
        return;
    }
    const bool scaled = config.rope.factor != 1.0F;
    // A factor without a type means linear.
    const std::string type(keys.text_or(prefix + "type", scaled ? "linear" : "none"));
    if (type == "yarn") {
        config.rope.scaling = RopeScaling::Yarn;
        read_yarn(keys, prefix, config);
        return;
    }
    if (type == "linear") {
        config.rope.scaling = scaled ? RopeScaling::Linear : RopeScaling::None;
    } else if (type == "none") {
        config.rope.factor = 1.0F;
    } else {
        refuse(keys, "rope scaling " + quoted_text(type) + " (" + prefix +
                         "type) is not supported; none, linear, yarn and llama3's factors are");
    }
    if (row.longrope) return read_longrope(keys, prefix, config);
    const float attention = keys.float_or(prefix + "attn_factor", 1.0F, {-1e3, 1e3});
    if (attention != 1.0F && attention != 0.0F) {
        refuse(keys, prefix + "attn_factor = " + number_text(static_cast<double>(attention)) +
                         " is supported with yarn only");
    }
}

void read_rope(GgufKeys& keys, const ArchitectureRow& row, ModelConfig& config) {
    const std::string arch = row.name;
    config.rope.base = keys.float_or(arch + ".rope.freq_base", 10000.0F, {1, 1e12});
    config.rope.dims =
        keys.int_or(arch + ".rope.dimension_count", config.head_dim, {2, kHeadDimMax});
    if (config.rope.dims % 2 != 0 || config.rope.dims > config.head_dim) {
        keys.fail(
            Errc::BadFile,
            fmt::format("{}.rope.dimension_count is {}; it must be even and at most the head's {}",
                        arch, config.rope.dims, config.head_dim));
    }
    read_scaling(keys, row, config);
}

const ArchitectureRow* find_architecture(std::string_view name) {
    for (const ArchitectureRow& row : kArchitectures) {
        if (name == row.name) return &row;
    }
    return nullptr;
}

}  // namespace

Result<ModelConfig> read_config(GgufKeys& keys, std::vector<std::string>& remarks) {
    ModelConfig config;
    const std::string arch(keys.text_or("general.architecture", ""));
    if (!keys.has("general.architecture")) {
        keys.fail(Errc::BadFile, "the key general.architecture is missing");
    }
    if (!keys.status()) return keys.status().error();
    const ArchitectureRow* row = find_architecture(arch);
    if (row == nullptr) {
        refuse(keys,
               "architecture " + quoted_text(arch) +
                   " (general.architecture) is not supported; llama, phi3, qwen2 and qwen3 are");
        return keys.status().error();
    }
    config.architecture = row->architecture;
    config.rope.pairing = row->pairing;
    config.qkv_bias = row->qkv_bias;
    config.qk_norm = row->qk_norm;
    config.name = std::string(keys.text_or("general.name", ""));

    read_widths(keys, arch, config);
    if (!keys.status()) return keys.status().error();
    read_head_dim(keys, arch, config);
    read_rope(keys, *row, config);
    read_window(keys, arch, config, remarks);
    refuse_what_is_no_switch(keys, arch);
    if (!keys.status()) return keys.status().error();
    return config;
}

}  // namespace paceline
