#include "model/weights/huggingface/tensor_types.hpp"

namespace paceline::huggingface {

std::int64_t length_of(Side side, const ModelConfig& config) {
    switch (side) {
        case Side::One:
            return 1;
        case Side::Width:
            return config.dim;
        case Side::Heads:
            return config.q_dim();
        case Side::KvHeads:
            return config.kv_dim();
        case Side::FeedForward:
            return config.ffn_dim;
        case Side::HeadWidth:
            return config.head_dim;
    }
    return 0;
}

std::optional<StoredType> stored_type(SafetensorsType type) {
    if (type == SafetensorsType::F32) return StoredType::F32;
    if (type == SafetensorsType::F16) return StoredType::F16;
    if (type == SafetensorsType::BF16) return StoredType::BF16;
    return std::nullopt;
}

}  // namespace paceline::huggingface
