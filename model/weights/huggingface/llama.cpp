// LlamaForCausalLM: Llama 2 to 3.3, SmolLM and SmolLM2, and many that were derived from them.
//
// The rows of q and k are read in the order of a GGUF file, so that both files of a model give the
// same bits, and a LoRA fits both.
#include "model/weights/huggingface/dense_layer.hpp"

namespace paceline::huggingface {
namespace {

constexpr auto kLayer = dense_layer(RowOrder::PairsOfHeads);
constexpr auto kBiases = qkv_biases(RowOrder::PairsOfHeads);

/// attention_bias is a bias of the output projection too, which has to be zero
/// (folder_tensors.cpp): so are those of models that were rewritten from Qwen's.
void read_biases(JsonKeys& keys, ModelConfig& config) {
    config.qkv_bias = keys.bool_or("attention_bias", false);
    refuse_bias(keys, "mlp_bias");
}

}  // namespace

const FolderArchitecture kLlama = {.class_name = "LlamaForCausalLM",
                                   .model_type = "llama",
                                   .architecture = Architecture::Llama,
                                   .pairing = RopePairing::Adjacent,
                                   .layer = {kLayer},
                                   .biases = kBiases,
                                   .read_more = read_biases};

}  // namespace paceline::huggingface
