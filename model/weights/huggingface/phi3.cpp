// Phi3ForCausalLM: Phi-3, Phi-3.5, Phi-4 and Phi-4-mini. Llama's arithmetic with q, k, v and gate,
// up fused in one matrix each; some rotate only the first dimensions of a head, or have lists of
// rope factors (longrope).
#include "model/weights/huggingface/dense_layer.hpp"

namespace paceline::huggingface {
namespace {

constexpr auto kLayer = dense_layer(RowOrder::AsStored);
constexpr std::array<FusedRule, 2> kFused = {{
    {"self_attn.qkv_proj.weight",
     {{{"self_attn.q_proj.weight", Side::Heads},
       {"self_attn.k_proj.weight", Side::KvHeads},
       {"self_attn.v_proj.weight", Side::KvHeads}}}},
    {"mlp.gate_up_proj.weight",
     {{{"mlp.gate_proj.weight", Side::FeedForward}, {"mlp.up_proj.weight", Side::FeedForward}}}},
}};

void read_window(JsonKeys& keys, ModelConfig& config) {
    refuse_biases(keys);
    const auto window = keys.find_int("sliding_window", {1, INT32_MAX});
    if (window) cut_to_window(config, static_cast<int>(*window));
}

}  // namespace

const FolderArchitecture kPhi3 = {.class_name = "Phi3ForCausalLM",
                                  .model_type = "phi3",
                                  .architecture = Architecture::Llama,
                                  .pairing = RopePairing::Halves,
                                  .layer = {kLayer},
                                  .fused = kFused,
                                  .partial_rotary = true,
                                  .yarn_is_longrope = true,
                                  .read_more = read_window};

}  // namespace paceline::huggingface
