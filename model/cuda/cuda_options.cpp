#include "model/cuda/cuda_options.hpp"

namespace paceline {

using cuda::CacheType;
using cuda::WeightType;

WeightType weight_type(const TensorView& tensor, Dtype dtype, MatrixUse use) {
    const PackedType packed = gpu_packed_type(tensor, dtype, use);  // never a block type
    if (packed == PackedType::F32) return WeightType::F32;
    if (packed == PackedType::BF16) return WeightType::BF16;
    if (packed == PackedType::Q4 || packed == PackedType::Q4Sym) return WeightType::Q4;
    return WeightType::Int8;
}

WeightType joined_type(WeightType a, WeightType b) {
    return a == b ? a : WeightType::BF16;
}

CacheType cache_type(KvType type) {
    switch (type) {
        case KvType::F32:
            return CacheType::F32;
        case KvType::F16:
            return CacheType::F16;
        case KvType::BF16:
            return CacheType::BF16;
    }
    return CacheType::BF16;
}

}  // namespace paceline
