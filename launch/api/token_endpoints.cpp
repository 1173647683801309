#include "launch/api/token_endpoints.hpp"

#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/chat_request.hpp"
#include "launch/api/completion_request.hpp"
#include "launch/api/fields.hpp"
#include "launch/api/json_reader.hpp"
#include "launch/api/messages/messages_request.hpp"
#include "launch/api/prepare_answers.hpp"
#include "launch/api/responses/responses_request.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;
using Json = nlohmann::ordered_json;

constexpr std::size_t kTextBytesAny = std::size_t{1} << 30;  // the body's limit counts
constexpr std::size_t kPiecesMax = std::size_t{1} << 17;     // some hundred bytes of JSON each

/// Bytes that are no UTF-8, as single tokens have them, become U+FFFD.
Reply token_reply(const Json& body) {
    return {.body = body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

ApiResult<std::vector<TokenId>> tokens_of_text(const json& body, const ServedModel& model) {
    Fields fields{body};
    const bool llama = fields.find("content") != nullptr;
    std::string text;
    fields.text(llama ? "content" : "prompt", text, kTextBytesAny);
    bool special = !llama;  // the begin token: the defaults of the two
    bool parse = true;
    fields.boolean("add_special", special);
    fields.boolean("add_special_tokens", special);
    fields.boolean("parse_special", parse);
    if (fields.error()) return *fields.error();
    if (!llama && fields.find("prompt") == nullptr)
        return bad_field("prompt", "is missing (or content, or messages)");
    std::vector<TokenId> ids;
    const std::optional<TokenId> bos = model.tokenizer().prompt_bos();
    if (special && bos) ids.push_back(*bos);
    const std::vector<TokenId> encoded =
        model.tokenizer().encode(text, parse ? SpecialTokens::Parse : SpecialTokens::AsText);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    return ids;
}

ApiResult<std::vector<TokenId>> tokens_of_chat(const json& body, const ServedModel& model) {
    ApiResult<ChatRequest> chat = chat_request(body);
    if (!chat) return chat.error();
    ApiResult<jinja::Text> text = render_chat(chat.value(), model);
    if (!text) return text.error();
    return encode(model.tokenizer(), text.value());
}

ApiResult<std::vector<TokenId>> tokens_of_body(const json& body, const ServedModel& model) {
    return Fields{body}.find("messages") == nullptr ? tokens_of_text(body, model)
                                                    : tokens_of_chat(body, model);
}

/// `as_chat`: from the API's body to that of a chat; nullptr: it is one.
Reply count_reply(std::string_view body,
                  ApiResult<json> (*as_chat)(const json&),
                  Json counted,
                  const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return reply_of(read.error());
    Fields fields{read.value()};
    std::string name;
    fields.text("model", name, kTextBytesAny);
    if (fields.error()) return reply_of(*fields.error());
    if (const std::optional<ApiError> other = wrong_model(name, model)) return reply_of(*other);
    ApiResult<json> chat = as_chat == nullptr ? std::move(read) : as_chat(read.value());
    if (!chat) return reply_of(chat.error());
    ApiResult<std::vector<TokenId>> ids = tokens_of_chat(chat.value(), model);
    if (!ids) return reply_of(ids.error());
    counted["input_tokens"] = ids.value().size();
    return token_reply(counted);
}

}  // namespace

Reply chat_tokens_reply(std::string_view body, const ServedModel& model) {
    return count_reply(body, nullptr, {{"object", "response.input_tokens"}}, model);
}

Reply responses_tokens_reply(std::string_view body, const ServedModel& model) {
    return count_reply(body, chat_body_of_responses, {{"object", "response.input_tokens"}}, model);
}

Reply messages_tokens_reply(std::string_view body, const ServedModel& model) {
    return count_reply(body, chat_body_of_messages, Json::object(), model);
}

Reply tokenize_reply(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return reply_of(read.error());
    Fields fields{read.value()};
    bool with_pieces = false;
    bool with_strings = false;
    std::string name;
    fields.boolean("with_pieces", with_pieces);
    fields.boolean("return_token_strs", with_strings);
    fields.text("model", name, kTextBytesAny);
    if (fields.error()) return reply_of(*fields.error());
    if (const std::optional<ApiError> other = wrong_model(name, model)) return reply_of(*other);
    ApiResult<std::vector<TokenId>> ids = tokens_of_body(read.value(), model);
    if (!ids) return reply_of(ids.error());
    if ((with_pieces || with_strings) && ids.value().size() > kPiecesMax)
        return reply_of(bad_field(
            with_pieces ? "with_pieces" : "return_token_strs",
            fmt::format("is for at most {} tokens, these are {}", kPiecesMax, ids.value().size())));
    Json strings = Json::array();
    Json pieces = Json::array();
    for (const TokenId id : ids.value()) {
        const std::string_view bytes = model.tokenizer().bytes_of(id);
        if (with_strings) strings.push_back(std::string{bytes});
        if (with_pieces) pieces.push_back({{"id", id}, {"piece", std::string{bytes}}});
    }
    return token_reply({{"tokens", with_pieces ? std::move(pieces) : Json(ids.value())},
                        {"count", ids.value().size()},
                        {"max_model_len", model.context},
                        {"token_strs", with_strings ? std::move(strings) : Json{}}});
}

Reply detokenize_reply(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return reply_of(read.error());
    const json* tokens = Fields{read.value()}.find("tokens");
    if (tokens == nullptr) return reply_of(bad_field("tokens", "is missing"));
    ApiResult<std::vector<TokenId>> ids = token_ids(*tokens, "tokens", model.vocab_size());
    if (!ids) return reply_of(ids.error());
    std::string text;
    for (const TokenId id : ids.value()) text += model.tokenizer().bytes_of(id);
    return token_reply({{"content", text}, {"prompt", text}});
}

Reply apply_template_reply(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return reply_of(read.error());
    ApiResult<ChatRequest> chat = chat_request(read.value());
    if (!chat) return reply_of(chat.error());
    ApiResult<jinja::Text> text = render_chat(chat.value(), model);
    if (!text) return reply_of(text.error());
    return token_reply({{"prompt", text.value().bytes()}});
}

}  // namespace paceline::serve
