#include "model/cuda/cuda_options.hpp"

namespace paceline {

using cuda::CacheType;

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
