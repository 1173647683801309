#include "model/cpu/cpu_options.hpp"

#include <array>

#include "model/cpu/cpu_weights.hpp"

namespace paceline {
namespace {

constexpr std::array kDtypes = {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4};
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

std::uint64_t packed_bytes(const ModelFile& file, Dtype dtype, int first_layer, int last_layer) {
    CpuWeights plan = CpuWeights::plan(file, dtype, first_layer, last_layer);
    return plan.packed_bytes();
}

std::uint64_t kv_bytes_per_slot(const ModelConfig& config, KvType type) {
    const std::uint64_t element = type == KvType::F32 ? 4 : 2;
    return 2 * element * static_cast<std::uint64_t>(config.kv_dim());
}

}  // namespace paceline
