#include "model/weights/huggingface/generation_config.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

namespace paceline::huggingface {
namespace {

using nlohmann::json;

/// Keys by which generate() changes or ends a text, in the order in which it applies them, and the
/// numbers that leave the text as it is.
struct TextKey {
    const char* key;
    std::optional<double> off_at_most = std::nullopt;
    std::optional<double> off_at_least = std::nullopt;
    bool drawn_only = false;
};
constexpr std::array kTextKeys{
    TextKey{"guidance_scale", 1.0, 1.0},
    TextKey{"sequence_bias"},
    TextKey{"encoder_repetition_penalty", 1.0, 1.0},
    TextKey{"no_repeat_ngram_size", 0.0},
    TextKey{"encoder_no_repeat_ngram_size", 0.0},
    TextKey{"bad_words_ids"},
    TextKey{"min_length", 0.0},
    TextKey{"min_new_tokens", 0.0},
    TextKey{"forced_bos_token_id"},
    TextKey{"forced_eos_token_id"},
    TextKey{"exponential_decay_length_penalty"},
    TextKey{"suppress_tokens"},
    TextKey{"begin_suppress_tokens"},
    TextKey{"top_h", {}, {}, true},
    TextKey{"typical_p", {}, 1.0, true},
    TextKey{"epsilon_cutoff", 0.0, 1.0, true},
    TextKey{"eta_cutoff", 0.0, 1.0, true},
    TextKey{"watermarking_config"},
    TextKey{"num_beams", 1.0},
    TextKey{"penalty_alpha", 0.0},
    TextKey{"dola_layers"},
    TextKey{"force_words_ids"},
    TextKey{"constraints"},
    TextKey{"token_healing"},
    TextKey{"stop_strings"},
    TextKey{"max_new_tokens"},
    TextKey{"max_length"},
    TextKey{"max_time"},
};

bool changes_text(const json& value, const TextKey& key) {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_array() || value.is_object()) return !value.empty();
    if (!value.is_number()) return true;
    const auto number = value.get<double>();
    // Both bounds the same: off is that number alone, not everything.
    if (key.off_at_most && key.off_at_most == key.off_at_least) return number != *key.off_at_most;
    return !(key.off_at_most && number <= *key.off_at_most) &&
           !(key.off_at_least && number >= *key.off_at_least);
}

std::vector<SamplingDefaults::Other> other_keys(const JsonKeys& keys) {
    std::vector<SamplingDefaults::Other> others;
    for (const TextKey& key : kTextKeys) {
        const json* value = keys.find(key.key);
        if (value != nullptr && changes_text(*value, key))
            others.push_back({key.key, key.drawn_only});
    }
    return others;
}

}  // namespace

SamplingDefaults read_sampling_defaults(JsonKeys& keys) {
    constexpr int kTopK = 50;                           // of transformers
    constexpr JsonKeys::NumberRange kAny{-1e30, 1e30};  // a float holds it
    SamplingDefaults defaults;
    defaults.stated = true;
    const bool drawn = keys.bool_or("do_sample", false);
    const double temperature = keys.number_or("temperature", 1.0, kAny);
    defaults.temperature = drawn ? static_cast<float>(temperature) : 0.0F;
    defaults.top_k = keys.int_or("top_k", kTopK, {INT32_MIN, INT32_MAX});
    // Of 1 and more transformers makes no filter.
    defaults.top_p = static_cast<float>(std::min(keys.number_or("top_p", 1.0, kAny), 1.0));
    defaults.min_p = static_cast<float>(keys.number_or("min_p", 0.0, kAny));
    if (const auto penalty = keys.find_number("repetition_penalty", kAny))
        defaults.repetition_penalty = static_cast<float>(*penalty);
    defaults.others = other_keys(keys);
    return defaults;
}

}  // namespace paceline::huggingface
