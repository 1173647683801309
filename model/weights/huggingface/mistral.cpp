// MistralForCausalLM: Llama's arithmetic; some models see only the last `sliding_window` tokens.
#include "model/weights/huggingface/dense_layer.hpp"

namespace paceline::huggingface {
namespace {

constexpr auto kLayer = dense_layer(RowOrder::PairsOfHeads);
constexpr int kWindow = 4096;  // of the class, where config.json does not say null

void read_window(JsonKeys& keys, ModelConfig& config) {
    refuse_biases(keys);
    if (keys.is_null("sliding_window")) return;
    cut_to_window(config, keys.int_or("sliding_window", kWindow, {1, INT32_MAX}));
}

}  // namespace

const FolderArchitecture kMistral = {.class_name = "MistralForCausalLM",
                                     .model_type = "mistral",
                                     .architecture = Architecture::Llama,
                                     .pairing = RopePairing::Adjacent,
                                     .layer = {kLayer},
                                     .kv_heads = 8,
                                     .read_more = read_window};

}  // namespace paceline::huggingface
