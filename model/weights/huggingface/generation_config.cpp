#include "model/weights/huggingface/generation_config.hpp"

#include <cstdint>

namespace paceline::huggingface {

SamplingDefaults read_sampling_defaults(JsonKeys& keys) {
    constexpr int kTopK = 50;  // of transformers
    SamplingDefaults defaults;
    defaults.stated = true;
    const bool drawn = keys.bool_or("do_sample", false);
    const double temperature = keys.number_or("temperature", 1.0, {0, 1e3});
    const int top_k = keys.int_or("top_k", kTopK, {0, INT32_MAX});
    const double top_p = keys.number_or("top_p", 1.0, {0, 1});
    const double min_p = keys.number_or("min_p", 0.0, {0, 1});
    const auto penalty = keys.find_number("repetition_penalty", {1e-3, 1e3});
    defaults.temperature = drawn ? static_cast<float>(temperature) : 0.0F;
    if (drawn) {
        defaults.top_k = top_k;
        defaults.top_p = static_cast<float>(top_p);
        defaults.min_p = static_cast<float>(min_p);
    }
    if (penalty) defaults.repetition_penalty = static_cast<float>(*penalty);
    return defaults;
}

}  // namespace paceline::huggingface
