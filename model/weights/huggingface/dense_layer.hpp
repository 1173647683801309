// The tensors of a layer that most dense architectures share, as rules.
#pragma once

#include <array>

#include "model/weights/huggingface/architecture.hpp"

namespace paceline::huggingface {

/// Norm, attention, norm, gated MLP. `order`: of the rows of q and k.
constexpr std::array<TensorRule, 9> dense_layer(RowOrder order) {
    using L = LayerTensors;
    using enum Side;
    return {{
        {"input_layernorm.weight", "attn_norm.weight", One, Width, &L::attn_norm},
        {"self_attn.q_proj.weight", "attn_q.weight", Heads, Width, &L::q, nullptr, order},
        {"self_attn.k_proj.weight", "attn_k.weight", KvHeads, Width, &L::k, nullptr, order},
        {"self_attn.v_proj.weight", "attn_v.weight", KvHeads, Width, &L::v},
        {"self_attn.o_proj.weight", "attn_output.weight", Width, Heads, &L::attn_out},
        {"post_attention_layernorm.weight", "ffn_norm.weight", One, Width, &L::ffn_norm},
        {"mlp.gate_proj.weight", "ffn_gate.weight", FeedForward, Width, &L::gate},
        {"mlp.up_proj.weight", "ffn_up.weight", FeedForward, Width, &L::up},
        {"mlp.down_proj.weight", "ffn_down.weight", Width, FeedForward, &L::down},
    }};
}

/// A bias on each of q, k and v. `order`: of the numbers of those of q and k.
constexpr std::array<TensorRule, 3> qkv_biases(RowOrder order) {
    using L = LayerTensors;
    using enum Side;
    return {{
        {"self_attn.q_proj.bias", "attn_q.bias", One, Heads, nullptr, &L::q_bias, order},
        {"self_attn.k_proj.bias", "attn_k.bias", One, KvHeads, nullptr, &L::k_bias, order},
        {"self_attn.v_proj.bias", "attn_v.bias", One, KvHeads, nullptr, &L::v_bias},
    }};
}

/// RMS norm of each head of q and k.
constexpr std::array<TensorRule, 2> qk_norms() {
    using L = LayerTensors;
    using enum Side;
    return {{
        {"self_attn.q_norm.weight", "attn_q_norm.weight", One, HeadWidth, nullptr, &L::q_norm},
        {"self_attn.k_norm.weight", "attn_k_norm.weight", One, HeadWidth, nullptr, &L::k_norm},
    }};
}

/// What the rules of biases and norms cannot say: a bias of other matrices too.
void refuse_bias(JsonKeys& keys, const char* key);
/// attention_bias and mlp_bias.
void refuse_biases(JsonKeys& keys);

/// Layers that see only the last `window` tokens. A context within the window is the same without
/// it, so the model's context is cut to it.
void cut_to_window(ModelConfig& config, int window);

/// sliding_window as the Qwen classes have it: only where use_sliding_window says so, and only in
/// layers from max_window_layers on, or in those that layer_types names.
void read_windows_of_layers(JsonKeys& keys, ModelConfig& config);

}  // namespace paceline::huggingface
