// Qwen2ForCausalLM: Qwen2 and Qwen2.5. Biases on q, k and v.
#include "model/weights/huggingface/dense_layer.hpp"

namespace paceline::huggingface {
namespace {

constexpr auto kLayer = dense_layer(RowOrder::AsStored);
constexpr auto kBiases = qkv_biases(RowOrder::AsStored);

}  // namespace

const FolderArchitecture kQwen2 = {.class_name = "Qwen2ForCausalLM",
                                   .model_type = "qwen2",
                                   .architecture = Architecture::Qwen2,
                                   .pairing = RopePairing::Halves,
                                   .layer = {kLayer},
                                   .biases = kBiases,
                                   .qkv_bias = true,
                                   .kv_heads = 32,
                                   .read_more = read_windows_of_layers};

}  // namespace paceline::huggingface
