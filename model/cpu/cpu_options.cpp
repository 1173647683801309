#include "model/cpu/cpu_options.hpp"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "model/cpu/cpu_weights.hpp"

namespace paceline {
namespace {

constexpr std::array kDtypes = {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4};
constexpr std::size_t kHeadsMax = 255;  // HeadId is a byte, 0 is the final head
constexpr std::array kKvTypes = {KvType::F32, KvType::F16, KvType::BF16};

PackedType four_bits(StoredType stored) {
    return stored == StoredType::Q4_0 ? PackedType::Q4Sym : PackedType::Q4;
}

bool stored_in_4_bits(StoredType stored) {
    return stored == StoredType::Q4_0 || stored == StoredType::Q4_1;
}

PackedType natural_type(StoredType stored) {
    switch (stored) {
        case StoredType::F32:
            return PackedType::F32;
        case StoredType::F16:
        case StoredType::BF16:
            return PackedType::BF16;
        case StoredType::Q8_0:
            return PackedType::Int8;
        case StoredType::Q4_0:
        case StoredType::Q4_1:
            return four_bits(stored);
    }
    return PackedType::F32;
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
    if (use == MatrixUse::Vocabulary && !stored_in_4_bits(stored)) return PackedType::Int8;
    return four_bits(stored);
}

Status check_heads(const ModelConfig& config, const std::vector<HeadSpec>& heads) {
    const auto bad = [](std::string what) {
        return Status{Error{Errc::BadArgument, std::move(what)}};
    };
    if (heads.size() > kHeadsMax)
        return bad("heads: " + std::to_string(heads.size()) + " of them, at most " +
                   std::to_string(kHeadsMax) + " can be named");
    const auto square = static_cast<std::size_t>(config.dim) * static_cast<std::size_t>(config.dim);
    for (std::size_t h = 0; h < heads.size(); ++h) {
        const std::string field = "heads[" + std::to_string(h) + "].";
        const std::vector<float>& transform = heads[h].transform;
        if (!transform.empty() && transform.size() != square) {
            return bad(field + "transform has " + std::to_string(transform.size()) +
                       " numbers, must have dim * dim = " + std::to_string(square) + " or none");
        }
        for (std::size_t i = 0; i < transform.size(); ++i) {
            if (std::isfinite(transform[i])) continue;
            return bad(field + "transform[" + std::to_string(i) + "] is not a finite number");
        }
        const std::vector<TokenId>& tokens = heads[h].tokens;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const std::string entry =
                field + "tokens[" + std::to_string(i) + "] = " + std::to_string(tokens[i]);
            if (tokens[i] < 0 || tokens[i] >= config.vocab_size)
                return bad(entry + ", must be 0 to " + std::to_string(config.vocab_size - 1));
            if (i > 0 && tokens[i] <= tokens[i - 1])
                return bad(entry + ", must be above the one before it (" +
                           std::to_string(tokens[i - 1]) + ")");
        }
    }
    return {};
}

std::uint64_t packed_bytes(const ModelFile& file, const CpuOptions& options) {
    return CpuWeights::plan(file, options).packed_bytes();
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
