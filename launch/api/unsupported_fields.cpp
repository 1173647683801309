#include "launch/api/unsupported_fields.hpp"

#include <string>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

bool asks_for_nothing(const json& value) {
    switch (value.type()) {
        case json::value_t::null:
            return true;
        case json::value_t::boolean:
            return !value.get<bool>();
        case json::value_t::array:
        case json::value_t::object:
            return value.empty();
        case json::value_t::string:
            return value.get_ref<const std::string&>().empty();
        default:
            return false;
    }
}

bool is_number(const json& value, double number) {
    return value.is_number() && value.get<double>() == number;
}

bool is_none(const json& value) {
    return asks_for_nothing(value) || value == "none";
}
bool is_zero(const json& value) {
    return asks_for_nothing(value) || is_number(value, 0.0);
}
bool is_below_zero_or_zero(const json& value) {
    return asks_for_nothing(value) || (value.is_number() && value.get<double>() <= 0.0);
}
bool is_true(const json& value) {
    return value.is_null() || value == true;
}
bool is_one(const json& value) {
    return asks_for_nothing(value) || is_number(value, 1.0);
}
bool is_text_modality(const json& value) {
    return asks_for_nothing(value) || value == json::array({"text"});
}

struct Unsupported {
    const char* name;
    bool (*accepted)(const json& value);
};

constexpr Unsupported kUnsupported[] = {
    // OpenAI's
    {"suffix", asks_for_nothing},
    {"best_of", is_one},
    {"functions", asks_for_nothing},
    {"function_call", is_none},
    {"modalities", is_text_modality},
    {"audio", asks_for_nothing},
    // vLLM's
    {"prompt_logprobs", asks_for_nothing},
    {"continue_final_message", asks_for_nothing},
    {"add_generation_prompt", is_true},
    {"use_beam_search", asks_for_nothing},
    {"min_tokens", is_zero},
    {"stop_token_ids", asks_for_nothing},
    {"bad_words", asks_for_nothing},
    {"truncate_prompt_tokens", asks_for_nothing},
    // llama.cpp's
    {"n_probs", is_zero},
    {"lora", asks_for_nothing},
    {"mirostat", is_zero},
    {"typical_p", is_one},
    {"dynatemp_range", is_zero},
    {"xtc_probability", is_zero},
    {"dry_multiplier", is_zero},
    {"top_n_sigma", is_below_zero_or_zero},
    {"adaptive_target", is_below_zero_or_zero},
    {"samplers", asks_for_nothing},
    {"t_max_predict_ms", is_below_zero_or_zero},
    {"n_indent", is_zero},
    {"min_keep", is_zero},
};

}  // namespace

std::optional<ApiError> unsupported_field(const json& body) {
    for (const Unsupported& field : kUnsupported) {
        const auto at = body.find(field.name);
        if (at == body.end() || field.accepted(*at)) continue;
        return not_implemented(field.name,
                               std::string{field.name} + ": this server does not implement it");
    }
    return {};
}

}  // namespace paceline::serve
