// LlamaForCausalLM: Llama 2 to 3.3, SmolLM and SmolLM2, and many that were derived from them.
//
// The rows of q and k are read in the order of a GGUF file, so that both files of a model give the same
// bits, and a LoRA fits both.
#include "model/weights/huggingface/dense_layer.hpp"

namespace paceline::huggingface {
namespace {

constexpr auto kLayer = dense_layer(RowOrder::PairsOfHeads);

}  // namespace

const FolderArchitecture kLlama = {
    .class_name = "LlamaForCausalLM",
    .model_type = "llama",
    .architecture = Architecture::Llama,
    .pairing = RopePairing::Adjacent,
    .layer = {kLayer},
    .read_more = [](JsonKeys& keys, ModelConfig& /*config*/) { refuse_biases(keys); }};

}  // namespace paceline::huggingface
