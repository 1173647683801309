#include "model/reference/reference_weights.hpp"

#include <cstddef>
#include <optional>

#include "ipc/base/check.hpp"

namespace paceline::reference {
namespace {

std::vector<float> dequantized(const TensorView& tensor) {
    const auto cols = static_cast<std::size_t>(tensor.cols);
    std::vector<float> values(static_cast<std::size_t>(tensor.rows) * cols);
    for (std::int64_t row = 0; row < tensor.rows; ++row) {
        dequantize_row(tensor, row,
                       std::span(values).subspan(static_cast<std::size_t>(row) * cols, cols));
    }
    return values;
}

std::vector<float> dequantized(const std::optional<TensorView>& tensor) {
    return tensor ? dequantized(*tensor) : std::vector<float>{};
}

LayerWeights layer_weights(const LayerTensors& tensors) {
    LayerWeights weights;
    weights.attn_norm = dequantized(tensors.attn_norm);
    weights.q = dequantized(tensors.q);
    weights.k = dequantized(tensors.k);
    weights.v = dequantized(tensors.v);
    weights.attn_out = dequantized(tensors.attn_out);
    weights.ffn_norm = dequantized(tensors.ffn_norm);
    weights.gate = dequantized(tensors.gate);
    weights.up = dequantized(tensors.up);
    weights.down = dequantized(tensors.down);
    weights.q_bias = dequantized(tensors.q_bias);
    weights.k_bias = dequantized(tensors.k_bias);
    weights.v_bias = dequantized(tensors.v_bias);
    weights.q_norm = dequantized(tensors.q_norm);
    weights.k_norm = dequantized(tensors.k_norm);
    return weights;
}

std::size_t floats_of(const LayerWeights& w) {
    std::size_t floats = 0;
    for (const auto* part :
         {&w.attn_norm, &w.q, &w.k, &w.v, &w.attn_out, &w.ffn_norm, &w.gate, &w.up, &w.down,
          &w.q_bias, &w.k_bias, &w.v_bias, &w.q_norm, &w.k_norm}) {
        floats += part->size();
    }
    return floats;
}

}  // namespace

ReferenceWeights::ReferenceWeights(const ModelFile& file,
                                   int first_layer,
                                   int last_layer,
                                   bool with_head)
    : first_layer_{first_layer} {
    const ModelConfig& config = file.config();
    PACE_CHECK(0 <= first_layer && first_layer <= last_layer && last_layer <= config.layers,
               "a segment is a range of the model's layers");
    layers_.reserve(static_cast<std::size_t>(last_layer - first_layer));
    for (int i = first_layer; i < last_layer; ++i) layers_.push_back(layer_weights(file.layer(i)));
    if (first_layer == 0) embedding_ = dequantized(file.embedding());
    if (with_head || last_layer == config.layers) {
        output_norm_ = dequantized(file.output_norm());
        const bool shared = config.tied_embeddings && first_layer == 0;
        if (!shared) head_ = dequantized(file.output_head());
    }
}

const LayerWeights& ReferenceWeights::layer(int index) const {
    return layers_.at(static_cast<std::size_t>(index - first_layer_));
}

std::span<const float> ReferenceWeights::output_head() const {
    if (output_norm_.empty()) return {};
    return head_.empty() ? embedding_ : head_;
}

std::uint64_t ReferenceWeights::bytes() const {
    std::size_t floats = embedding_.size() + output_norm_.size() + head_.size();
    for (const LayerWeights& layer : layers_) floats += floats_of(layer);
    return floats * sizeof(float);
}

}  // namespace paceline::reference
