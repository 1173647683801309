#include "model/cpu/cpu_options.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <string>
#include <tuple>
#include <utility>

#include "model/cpu/cpu_weights.hpp"
#include "model/kernels/cpu/kernel_table.hpp"

namespace paceline {
namespace {

constexpr std::array kDtypes = {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4};
constexpr std::size_t kHeadsMax = 254;  // HeadId is a byte; 0 is the final head, 255 an adapter's
constexpr int kAdapterHeadsMax = 1024;  // products of shapes stay far inside an int
constexpr std::array kKvTypes = {KvType::F32, KvType::F16, KvType::BF16};

/// In codes of at most 4 bits.
bool stored_in_4_bits_or_less(StoredType stored) {
    switch (stored) {
        case StoredType::Q4_0:
        case StoredType::Q4_1:
        case StoredType::Q2_K:
        case StoredType::Q3_K:
        case StoredType::Q4_K:
        case StoredType::IQ4_NL:
        case StoredType::IQ4_XS:
        case StoredType::MXFP4:
            return true;
        case StoredType::F32:
        case StoredType::F16:
        case StoredType::BF16:
        case StoredType::Q8_0:
        case StoredType::Q5_0:
        case StoredType::Q5_1:
        case StoredType::Q5_K:
        case StoredType::Q6_K:
            return false;
    }
    return false;
}

Error bad(std::string what) {
    return {Errc::BadArgument, std::move(what)};
}

/// `field` is a prefix: "heads[1].".
Status check_list(const ModelConfig& config,
                  const std::string& field,
                  const std::vector<TokenId>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::string entry = fmt::format("{}tokens[{}] = {}", field, i, tokens[i]);
        if (tokens[i] < 0 || tokens[i] >= config.vocab_size)
            return bad(fmt::format("{}, must be 0 to {}", entry, config.vocab_size - 1));
        if (i > 0 && tokens[i] <= tokens[i - 1])
            return bad(
                fmt::format("{}, must be above the one before it ({})", entry, tokens[i - 1]));
    }
    return {};
}

Status check_finite(const std::string& field, const std::vector<float>& numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (std::isfinite(numbers[i])) continue;
        return bad(fmt::format("{}[{}] is not a finite number", field, i));
    }
    return {};
}

}  // namespace

std::optional<Dtype> parse_dtype(std::string_view text) {
    for (Dtype dtype : kDtypes) {
        if (text == name(dtype)) return dtype;
    }
    return std::nullopt;
}

std::string_view name(Dtype dtype) {
    switch (dtype) {
        case Dtype::Auto:
            return "auto";
        case Dtype::F32:
            return "f32";
        case Dtype::BF16:
            return "bf16";
        case Dtype::Int8:
            return "int8";
        case Dtype::Q4:
            return "q4";
    }
    return "?";
}

std::optional<KvType> parse_kv_type(std::string_view text) {
    for (KvType type : kKvTypes) {
        if (text == name(type)) return type;
    }
    return std::nullopt;
}

std::string_view name(KvType type) {
    switch (type) {
        case KvType::F32:
            return "f32";
        case KvType::F16:
            return "f16";
        case KvType::BF16:
            return "bf16";
    }
    return "?";
}

PackedType packed_type(StoredType stored, Dtype dtype, MatrixUse use) {
    switch (dtype) {
        case Dtype::Auto:
            return natural_type(stored);
        case Dtype::F32:
            return PackedType::F32;
        case Dtype::BF16:
            return PackedType::BF16;
        case Dtype::Int8:
            return PackedType::Int8;
        case Dtype::Q4:
            break;
    }
    if (stored_in_4_bits_or_less(stored)) return natural_type(stored);
    if (use == MatrixUse::Layer) return PackedType::Q4;
    const PackedType natural = natural_type(stored);
    return is_block_type(natural) ? natural : PackedType::Int8;
}

PackedType packed_type(const TensorView& tensor, Dtype dtype, MatrixUse use) {
    const bool rounded_anew = tensor.added != nullptr && traits(tensor.type).block_elements > 1;
    return packed_type(rounded_anew ? StoredType::Q8_0 : tensor.type, dtype, use);
}

bool all_floats(const ModelFile& file, Dtype dtype) {
    const auto is_float = [&](const TensorView& tensor, MatrixUse use) {
        return packed_type(tensor, dtype, use) == PackedType::F32;
    };
    for (int l = 0; l < file.config().layers; ++l) {
        const LayerTensors& layer = file.layer(l);
        for (const TensorView* tensor :
             {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
            if (!is_float(*tensor, MatrixUse::Layer)) return false;
        }
    }
    return is_float(file.output_head(), MatrixUse::Vocabulary);
}

Status check_heads(const ModelConfig& config, const std::vector<HeadSpec>& heads) {
    if (heads.size() > kHeadsMax)
        return bad(
            fmt::format("heads: {} of them, at most {} can be named", heads.size(), kHeadsMax));
    const auto square = static_cast<std::size_t>(config.dim) * static_cast<std::size_t>(config.dim);
    for (std::size_t h = 0; h < heads.size(); ++h) {
        const std::string field = fmt::format("heads[{}].", h);
        const std::vector<float>& transform = heads[h].transform;
        if (!transform.empty() && transform.size() != square) {
            return bad(fmt::format("{}transform has {} numbers, must have dim * dim = {} or none",
                                   field, transform.size(), square));
        }
        if (Status finite = check_finite(field + "transform", transform); !finite) return finite;
        const bool fits = !transform.empty() && heads[h].norm_first;
        if (heads[h].block == HeadBlock::Residual && !fits)
            return bad(field + "block = residual, must have a transform and the norm first");
        if (Status list = check_list(config, field, heads[h].tokens); !list) return list;
    }
    return {};
}

Status check_adapter(const ModelConfig& config, const AdapterSpec& adapter) {
    const auto text = [](int number) { return std::to_string(number); };
    if (adapter.head_dim != config.head_dim)
        return bad("adapter.head_dim = " + text(adapter.head_dim) + ", must be the target's " +
                   text(config.head_dim));
    if (adapter.kv_heads < 1 || adapter.kv_heads > kAdapterHeadsMax)
        return bad("adapter.kv_heads = " + text(adapter.kv_heads) + ", must be 1 to " +
                   text(kAdapterHeadsMax));
    const int most = std::min(kAdapterHeadsMax, adapter.kv_heads * kAttentionQueriesMax);
    if (adapter.heads < 1 || adapter.heads > most || adapter.heads % adapter.kv_heads != 0)
        return bad("adapter.heads = " + text(adapter.heads) +
                   ", must be a multiple of kv_heads = " + text(adapter.kv_heads) + " of at most " +
                   text(most));
    const auto dim = static_cast<std::size_t>(config.dim);
    const auto head_dim = static_cast<std::size_t>(adapter.head_dim);
    const auto q_dim = static_cast<std::size_t>(adapter.heads) * head_dim;
    const auto kv_dim = static_cast<std::size_t>(adapter.kv_heads) * head_dim;
    const std::tuple<const char*, const std::vector<float>*, std::size_t> parts[] = {
        {"attn_norm", &adapter.attn_norm, dim},
        {"q", &adapter.q, q_dim * dim},
        {"k", &adapter.k, kv_dim * dim},
        {"v", &adapter.v, kv_dim * dim},
        {"attn_out", &adapter.attn_out, dim * q_dim},
        {"out_norm", &adapter.out_norm, dim},
    };
    for (const auto& [name, numbers, size] : parts) {
        const std::string field = std::string{"adapter."} + name;
        if (numbers->size() != size)
            return bad(
                fmt::format("{} has {} numbers, must have {}", field, numbers->size(), size));
        if (Status finite = check_finite(field, *numbers); !finite) return finite;
    }
    return check_list(config, "adapter.", adapter.tokens);
}

std::uint64_t packed_bytes(const ModelFile& file, const CpuOptions& options) {
    const std::uint64_t adapter =
        options.adapter ? CpuWeights::plan_adapter(file, options).packed_bytes() : 0;
    return CpuWeights::plan(file, options).packed_bytes() + adapter;
}

std::uint64_t packed_bytes(const ModelFile& file, Dtype dtype, int first_layer, int last_layer) {
    return packed_bytes(file,
                        {.dtype = dtype, .first_layer = first_layer, .last_layer = last_layer});
}

std::uint64_t kv_bytes_per_slot(const ModelConfig& config, KvType type) {
    const std::uint64_t element = type == KvType::F32 ? 4 : 2;
    return 2 * element * static_cast<std::uint64_t>(config.kv_dim());
}

}  // namespace paceline
