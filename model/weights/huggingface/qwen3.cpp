// Qwen3ForCausalLM: norms of each head of q and k, and heads whose width is stated.
#include "model/weights/huggingface/dense_layer.hpp"

namespace paceline::huggingface {
namespace {

constexpr auto kLayer = dense_layer(RowOrder::AsStored);
constexpr auto kNorms = qk_norms();

}  // namespace

const FolderArchitecture kQwen3 = {.class_name = "Qwen3ForCausalLM",
                                   .model_type = "qwen3",
                                   .architecture = Architecture::Qwen3,
                                   .pairing = RopePairing::Halves,
                                   .layer = {kLayer, kNorms},
                                   .qk_norm = true,
                                   .kv_heads = 32,
                                   .head_dim = 128,
                                   .read_more = [](JsonKeys& keys, ModelConfig& config) {
                                       refuse_biases(keys);
                                       read_windows_of_layers(keys, config);
                                   }};

}  // namespace paceline::huggingface
