#include "model/cuda/cuda_options.hpp"

namespace paceline {

using cuda::CacheType;
using cuda::WeightType;

WeightType weight_type(const TensorView& tensor, Dtype dtype, MatrixUse use) {
    switch (gpu_packed_type(tensor, dtype, use)) {
        case PackedType::F32:
            return WeightType::F32;
        case PackedType::BF16:
            return WeightType::BF16;
        case PackedType::Q4:
        case PackedType::Q4Sym:
            return WeightType::Q4;
        case PackedType::Int8:
        case PackedType::Q5_0:  // blocks never come out of gpu_packed_type()
        case PackedType::Q5_1:
        case PackedType::Q2K:
        case PackedType::Q3K:
        case PackedType::Q4K:
        case PackedType::Q5K:
        case PackedType::Q6K:
        case PackedType::IQ4NL:
        case PackedType::IQ4XS:
        case PackedType::MXFP4:
            break;
    }
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
