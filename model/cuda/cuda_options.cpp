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

std::vector<int> devices_of(const CudaOptions& options) {
    std::vector<int> devices{options.device};
    devices.insert(devices.end(), options.others.begin(), options.others.end());
    return devices;
}

std::string device_text(const CudaOptions& options) {
    std::string text;
    for (const int device : devices_of(options))
        text += (text.empty() ? "cuda:" : ",cuda:") + std::to_string(device);
    return text;
}

}  // namespace paceline
