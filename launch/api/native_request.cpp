#include "launch/api/native_request.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/completion_request.hpp"
#include "launch/api/fields.hpp"
#include "launch/api/generation_fields.hpp"
#include "launch/api/prepare_answers.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr double kBanned = -100.0;  // the lowest bias of the API

/// The value under its other name, unless the body has that one too.
void rename(json& body, const char* from, const char* to) {
    const auto at = body.find(from);
    if (at == body.end()) return;
    json value = std::move(*at);
    body.erase(at);
    if (!body.contains(to)) body[to] = std::move(value);
}

bool is_below_zero(const json& value) {
    const std::optional<std::int64_t> whole = whole_number_of(value);
    return whole && *whole < 0;
}

/// The ids that one entry of a list means.
ApiResult<std::vector<TokenId>> biased_tokens(const json& token,
                                              const std::string& place,
                                              const ServedModel& model) {
    if (token.is_string())
        return model.tokenizer().encode(token.get_ref<const std::string&>(), SpecialTokens::AsText);
    return token_ids(json::array({token}), place, model.vocab_size());
}

ApiResult<json> biases_of(const json& list, const ServedModel& model) {
    json biases = json::object();
    if (list.size() > kLogitBiasesMax)
        return bad_field("logit_bias", fmt::format("has more than {} entries", kLogitBiasesMax));
    for (std::size_t i = 0; i < list.size(); ++i) {
        const json& pair = list[i];
        const std::string place = fmt::format("logit_bias[{}]", i);
        if (!pair.is_array() || pair.size() != 2)
            return bad_field(place, "must be a list of a token and its bias");
        ApiResult<std::vector<TokenId>> tokens = biased_tokens(pair[0], place, model);
        if (!tokens) return tokens.error();
        const bool banned = pair[1].is_boolean() && !pair[1].get<bool>();
        if (!banned && !pair[1].is_number())
            return bad_field(place, "has a bias that is neither a number nor false");
        for (const TokenId token : tokens.value())
            biases[std::to_string(token)] = banned ? json(kBanned) : pair[1];
    }
    return biases;
}

/// {"5": 1, " text": -1} as [[5, 1], [" text", -1]].
json pairs_of(const json& object) {
    json pairs = json::array();
    for (const auto& [key, bias] : object.items()) {
        std::int64_t id = 0;
        const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
        const bool whole = parsed.ec == std::errc{} && parsed.ptr == key.data() + key.size();
        pairs.push_back(json::array({whole ? json(id) : json(key), bias}));
    }
    return pairs;
}

bool is_one_prompt(const json& list) {
    return std::any_of(list.begin(), list.end(), [](const json& each) { return each.is_number(); });
}

/// A text, ids, or a list in which both alternate.
ApiResult<std::vector<TokenId>> tokens_of_prompt(const json& given,
                                                 const std::string& place,
                                                 const ServedModel& model) {
    if (given.is_string()) return encode_raw(given.get_ref<const std::string&>(), model);
    if (given.is_object()) {
        const auto text = given.find("prompt_string");
        if (given.contains("multimodal_data"))
            return bad_field(place + ".multimodal_data", "the model reads nothing but text");
        if (text != given.end() && text->is_string())
            return encode_raw(text->get_ref<const std::string&>(), model);
    }
    if (!given.is_array() || given.empty())
        return bad_field(place,
                         "must be a string, a list of token ids and strings, or a list of "
                         "such prompts");
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const std::string name = fmt::format("{}[{}]", place, i);
        ApiResult<std::vector<TokenId>> part =
            given[i].is_string()
                ? ApiResult<std::vector<TokenId>>{model.tokenizer().encode(
                      given[i].get_ref<const std::string&>(), SpecialTokens::Parse)}
                : token_ids(json::array({given[i]}), name, model.vocab_size());
        if (!part)
            return bad_field(name, fmt::format("must be a text or a token id from 0 to {}",
                                               model.vocab_size() - 1));
        tokens.insert(tokens.end(), part.value().begin(), part.value().end());
    }
    return tokens;
}

}  // namespace

ApiResult<json> with_common_names(const json& body, const ServedModel& model) {
    json common = body;
    rename(common, "n_predict", "max_tokens");
    rename(common, "repeat_penalty", "repetition_penalty");
    for (const char* name : {"max_tokens", "seed"}) {
        const auto at = common.find(name);
        if (at != common.end() && is_below_zero(*at)) common.erase(at);
    }
    const auto biases = common.find("logit_bias");
    if (biases == common.end() || !(biases->is_array() || biases->is_object())) return common;
    ApiResult<json> object = biases_of(biases->is_array() ? *biases : pairs_of(*biases), model);
    if (!object) return object.error();
    *biases = std::move(object.value());
    return common;
}

ApiResult<NativePrompts> native_prompts(const json& body, const ServedModel& model) {
    const json* prompt = Fields{body}.find("prompt");
    if (prompt == nullptr) return bad_field("prompt", "is missing");
    NativePrompts prompts{.list = prompt->is_array() && !is_one_prompt(*prompt)};
    const json one = json::array({*prompt});
    const json& all = prompts.list ? *prompt : one;
    if (all.empty() || all.size() > kChoicesMax)
        return bad_field("prompt", fmt::format("must have 1 to {} prompts", kChoicesMax));
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string place = prompts.list ? fmt::format("prompt[{}]", i) : "prompt";
        ApiResult<std::vector<TokenId>> tokens = tokens_of_prompt(all[i], place, model);
        if (!tokens) return tokens.error();
        prompts.tokens.push_back(std::move(tokens.value()));
    }
    return prompts;
}

}  // namespace paceline::serve
