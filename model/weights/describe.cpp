#include "model/weights/describe.hpp"

#include <array>
#include <cstdio>
#include <fmt/core.h>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::array kStoredTypes = {
    StoredType::F32,  StoredType::F16,    StoredType::BF16,   StoredType::Q8_0,
    StoredType::Q4_0, StoredType::Q4_1,   StoredType::Q5_0,   StoredType::Q5_1,
    StoredType::Q2_K, StoredType::Q3_K,   StoredType::Q4_K,   StoredType::Q5_K,
    StoredType::Q6_K, StoredType::IQ4_NL, StoredType::IQ4_XS, StoredType::MXFP4};

/// "98.4 MB", "8.2 kB"; decimal units, as disks and downloads are sold.
std::string bytes_text(std::uint64_t bytes) {
    const bool large = bytes >= 1'000'000;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), large ? "%.1f MB" : "%.1f kB",
                  static_cast<double>(bytes) / (large ? 1e6 : 1e3));
    return text.data();
}

std::string describe_scaling(const RopeConfig& rope) {
    switch (rope.scaling) {
        case RopeScaling::None:
            return "no scaling";
        case RopeScaling::Linear:
            return "linear scaling by " + number_text(static_cast<double>(rope.factor));
        case RopeScaling::Yarn:
            return fmt::format("yarn scaling by {} from a context of {}",
                               number_text(static_cast<double>(rope.factor)),
                               rope.original_context);
        case RopeScaling::Factors:
            return "a factor per frequency (llama3)";
    }
    return "unknown scaling";
}

std::string describe_rope(const RopeConfig& rope) {
    return fmt::format(
        "base {}, {} dimensions, {}{}", number_text(static_cast<double>(rope.base)), rope.dims,
        (rope.pairing == RopePairing::Adjacent ? "adjacent pairs, " : "halves paired, "),
        describe_scaling(rope));
}

std::string describe_tokenizer(const TokenizerData& tokenizer) {
    if (tokenizer.tokens.empty()) return "none";
    const std::string pre = tokenizer.pre.empty() ? "no pre-tokenizer stated" : tokenizer.pre;
    return fmt::format("{} ({}), {} tokens", tokenizer.model, pre, tokenizer.tokens.size());
}

std::uint64_t parameters_of(const TensorView& tensor) {
    return static_cast<std::uint64_t>(tensor.rows) * static_cast<std::uint64_t>(tensor.cols);
}

TypeSummary summarise_type(const ModelFile& model, StoredType type) {
    TypeSummary summary;
    summary.type = type;
    for (const TensorView& tensor : model.tensors()) {
        if (tensor.type != type) continue;
        ++summary.tensors;
        summary.parameters += parameters_of(tensor);
        summary.bytes += tensor.bytes;
    }
    return summary;
}

}  // namespace

const char* name_of(Architecture architecture) {
    switch (architecture) {
        case Architecture::Llama:
            return "llama";
        case Architecture::Qwen2:
            return "qwen2";
        case Architecture::Qwen3:
            return "qwen3";
    }
    return "unknown";
}

ModelSummary summarise(const ModelFile& model) {
    ModelSummary summary;
    summary.format = model.format();
    summary.architecture = name_of(model.config().architecture);
    summary.name = model.config().name;
    summary.rope = describe_rope(model.config().rope);
    summary.tokenizer = describe_tokenizer(model.tokenizer());
    summary.file_bytes = model.file_bytes();
    for (const StoredType type : kStoredTypes) {
        const TypeSummary of_type = summarise_type(model, type);
        if (of_type.tensors == 0) continue;
        summary.types.push_back(of_type);
        summary.tensors += of_type.tensors;
        summary.parameters += of_type.parameters;
        summary.tensor_bytes += of_type.bytes;
    }
    for (const TensorView& tensor : model.tensors()) {
        if (tensor.rows > 1) summary.matrix_parameters += parameters_of(tensor);
    }
    return summary;
}

std::string describe(const ModelFile& model) {
    const ModelSummary summary = summarise(model);
    const ModelConfig& config = model.config();
    std::string text;
    const auto line = [&](const char* field, const std::string& value) {
        text += field;
        text += ": " + value + "\n";
    };
    line("file",
         model.path() + " (" + summary.format + ", " + bytes_text(summary.file_bytes) + ")");
    line("architecture", summary.architecture + (summary.name.empty() ? "" : ", " + summary.name));
    line("layers",
         fmt::format("{} of width {}, MLP {}", config.layers, config.dim, config.ffn_dim));
    line("attention", fmt::format("{} heads of {}, {} KV heads{}{}", config.heads, config.head_dim,
                                  config.kv_heads, (config.qkv_bias ? ", q/k/v bias" : ""),
                                  (config.qk_norm ? ", q/k norm" : "")));
    line("rope", summary.rope);
    line("vocabulary", std::to_string(config.vocab_size) +
                           (config.tied_embeddings ? ", tied embeddings" : ", untied embeddings"));
    line("context", std::to_string(config.context_length));
    line("tokenizer", summary.tokenizer);
    if (const MergedLora* lora = model.lora()) {
        line("lora",
             fmt::format("{}, rank {}, {} matrices", lora->path, lora->rank, lora->tensors));
    }
    line("parameters", fmt::format("{} in {} tensors, {}", summary.parameters, summary.tensors,
                                   bytes_text(summary.tensor_bytes)));
    for (const TypeSummary& type : summary.types) {
        line("  stored as", fmt::format("{}: {} tensors, {} parameters, {}", traits(type.type).name,
                                        type.tensors, type.parameters, bytes_text(type.bytes)));
    }
    return text;
}

}  // namespace paceline
