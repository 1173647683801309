// ReferenceWeights: the weights of a segment as plain float32 arrays.
//
// Owns its arrays (de-quantised copies), so the ModelFile may go away afterwards. Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/weights/model_file.hpp"

namespace paceline::reference {

/// One layer, shapes as in LayerTensors; what the model has not is empty.
struct LayerWeights {
    std::vector<float> attn_norm, q, k, v, attn_out;
    std::vector<float> ffn_norm, gate, up, down;
    std::vector<float> q_bias, k_bias, v_bias;
    std::vector<float> q_norm, k_norm;
};

class ReferenceWeights {
public:
    /// Layers [first_layer, last_layer) of `file`; the embedding if the segment begins the
    /// model, the output norm and head if it ends it or `with_head`.
    ReferenceWeights(const ModelFile& file,
                     int first_layer,
                     int last_layer,
                     bool with_head = false);

    /// `index` counts from the model's first layer.
    [[nodiscard]] const LayerWeights& layer(int index) const;
    [[nodiscard]] std::span<const float> embedding() const { return embedding_; }
    [[nodiscard]] std::span<const float> output_norm() const { return output_norm_; }
    [[nodiscard]] std::span<const float> output_head() const;
    [[nodiscard]] std::uint64_t bytes() const;

private:
    int first_layer_;
    std::vector<LayerWeights> layers_;
    std::vector<float> embedding_;    // [vocab_size, dim], or empty
    std::vector<float> output_norm_;  // [dim], or empty
    std::vector<float> head_;  // [vocab_size, dim]; empty if it is the embedding, or not here
};

}  // namespace paceline::reference
