#include "launch/api/completion_request.hpp"

#include <fmt/core.h>
#include <optional>

#include <nlohmann/json.hpp>

#include "launch/api/fields.hpp"
#include "launch/api/generation_fields.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kForms =
    "must be a string, a list of token ids, or a list of strings and such lists";

ApiResult<CompletionPrompt> one_prompt(const json& value,
                                       const std::string& place,
                                       int vocab_size) {
    if (value.is_string()) return CompletionPrompt{value.get<std::string>()};
    if (!value.is_array()) return bad_field(place, kForms);
    ApiResult<std::vector<TokenId>> ids = token_ids(value, place, vocab_size);
    if (!ids) return ids.error();
    if (ids.value().empty()) return bad_field(place, "must not be empty");
    return CompletionPrompt{std::move(ids.value())};
}

}  // namespace

ApiResult<std::vector<TokenId>> token_ids(const json& ids,
                                          const std::string& place,
                                          int vocab_size) {
    if (!ids.is_array()) return bad_field(place, "must be a list of token ids");
    std::vector<TokenId> tokens;
    tokens.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::optional<std::int64_t> id = whole_number_of(ids[i]);
        if (!id || *id < 0 || *id >= vocab_size)
            return bad_field(fmt::format("{}[{}]", place, i),
                             fmt::format("must be a token id from 0 to {}", vocab_size - 1));
        tokens.push_back(static_cast<TokenId>(*id));
    }
    return tokens;
}

ApiResult<std::vector<CompletionPrompt>> completion_prompts(const json& body, int vocab_size) {
    const json* prompt = Fields{body}.find("prompt");
    if (prompt == nullptr) return bad_field("prompt", "is missing");
    const bool list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
    std::vector<CompletionPrompt> prompts;
    if (!list) {
        ApiResult<CompletionPrompt> one = one_prompt(*prompt, "prompt", vocab_size);
        if (!one) return one.error();
        prompts.push_back(std::move(one.value()));
        return prompts;
    }
    if (prompt->size() > kChoicesMax)
        return bad_field("prompt", fmt::format("has more than {} prompts", kChoicesMax));
    for (std::size_t i = 0; i < prompt->size(); ++i) {
        ApiResult<CompletionPrompt> one =
            one_prompt((*prompt)[i], fmt::format("prompt[{}]", i), vocab_size);
        if (!one) return one.error();
        prompts.push_back(std::move(one.value()));
    }
    return prompts;
}

}  // namespace paceline::serve
