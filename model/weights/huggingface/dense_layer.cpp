#include "model/weights/huggingface/dense_layer.hpp"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace paceline::huggingface {

void refuse_bias(JsonKeys& keys, const char* key) {
    if (keys.bool_or(key, false))
        keys.fail(Errc::Unsupported, keys.name(key) + " is true; these biases are not supported");
}

void refuse_biases(JsonKeys& keys) {
    for (const char* key : {"attention_bias", "mlp_bias"}) refuse_bias(keys, key);
}

void cut_to_window(ModelConfig& config, int window) {
    config.context_length = std::min(config.context_length, window);
}

void read_windows_of_layers(JsonKeys& keys, ModelConfig& config) {
    constexpr int kWindow = 4096;  // of the classes
    constexpr int kFullLayers = 28;
    const bool windows = keys.bool_or("use_sliding_window", false);
    const int window = keys.int_or("sliding_window", kWindow, {1, INT32_MAX});
    const int full = keys.int_or("max_window_layers", kFullLayers, {0, INT32_MAX});
    bool used = full < config.layers;
    if (const nlohmann::json* types = keys.find("layer_types")) {
        used = types->is_array() &&
               std::find(types->begin(), types->end(), "sliding_attention") != types->end();
    }
    if (windows && used && !keys.is_null("sliding_window")) cut_to_window(config, window);
}

}  // namespace paceline::huggingface
