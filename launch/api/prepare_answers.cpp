#include "launch/api/prepare_answers.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/completion_request.hpp"
#include "launch/api/fields.hpp"
#include "launch/api/grammar/grammar_request.hpp"
#include "launch/api/json_reader.hpp"
#include "launch/api/messages/messages_request.hpp"
#include "launch/api/native_request.hpp"
#include "launch/api/responses/responses_request.hpp"
#include "launch/api/tools/parameter_texts.hpp"
#include "launch/api/tools/tool_grammar.hpp"
#include "launch/api/tools/tools_as_text.hpp"
#include "launch/base/json_text.hpp"
#include "launch/config/method_list.hpp"
#include "launch/tool_calls/first_call.hpp"
#include "model/grammar/grammar.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kResponseFieldsMax = 64;
constexpr std::size_t kResponseFieldBytesMax = 256;

/// Below 2^53: clients in JavaScript give it back as they got it.
constexpr std::size_t kMetadataMax = 16;  // as OpenAI's; they are repeated in the response

std::uint64_t drawn_seed() {
    std::random_device device;
    const std::uint64_t bits = (std::uint64_t{device()} << 32U) | device();
    return bits >> 11U;
}

/// Errors: 400 with the code that clients look for.
std::optional<ApiError> too_long(const char* param, std::size_t tokens, const ServedModel& model) {
    if (tokens == 0)
        return bad_field(param, "is empty, and this model has no token that begins a text");
    if (tokens < static_cast<std::size_t>(model.context)) return {};
    return ApiError{
        .status = 400,
        .message = fmt::format("{}: has {} tokens; with one of an answer that is more than the "
                               "context of {} tokens",
                               param, tokens, model.context),
        .param = param,
        .code = "context_length_exceeded"};
}

std::optional<ApiError> check_method(GenerationFields& fields, const MethodInUse& method) {
    if (fields.method.empty() || fields.method == method.name) return {};
    if (fields.method != kPlainMethod) {
        return bad_field("paceline.method", "'" + visible(fields.method) +
                                                "' does not run here; possible are \"" +
                                                method.name + "\" and \"plain\"");
    }
    fields.speculation.on = false;
    return {};
}

ApiResult<GenerationFields> common_fields(const json& body, const ServedModel& model) {
    ApiResult<GenerationFields> fields = generation_fields(body);
    if (!fields) return fields;
    GenerationFields& read = fields.value();
    if (const std::optional<ApiError> other = wrong_model(read.model, model)) return *other;
    const MethodInUse method = model.method->get();
    if (const std::optional<ApiError> other = check_method(read, method)) return *other;
    if (read.speculation.gamma > method.gamma)
        return bad_field("paceline.gamma",
                         fmt::format("{} is out of range, method {} verifies at most {} candidates "
                                     "after each other",
                                     read.speculation.gamma, method.name, method.gamma));
    for (const auto& [token, bias] : read.sampling.logit_bias) {
        if (token >= model.vocab_size())
            return bad_field("logit_bias", fmt::format("{} is no token id from 0 to {}", token,
                                                       model.vocab_size() - 1));
    }
    return fields;
}

ServiceOrder order_of(const std::vector<TokenId>& prompt,
                      const PreparedAnswers& prepared,
                      int answer,
                      const ServedModel& model) {
    const GenerationFields& fields = prepared.fields;
    ServiceOrder order;
    Request& request = order.request;
    request.text = prompt;
    request.sampling = sampling_of(fields.sampling, model.opened.file.sampling_defaults(),
                                   static_cast<Position>(prompt.size()),
                                   prepared.seed + static_cast<std::uint64_t>(answer));
    if (!fields.ignore_eos) request.end_tokens = model.tokenizer().end_tokens();
    if (fields.max_tokens) request.max_tokens = std::max(*fields.max_tokens, 1);
    order.prompt_only = fields.max_tokens == 0;
    request.scores = fields.scores.scores;
    request.grammar = prepared.grammar;
    request.cache_salt = fields.cache_salt;
    request.speculation = fields.speculation;
    order.text.emplace(model.tokenizer(), prompt.back(), fields.stop);
    if (!prepared.reply.is_plain()) order.text->show(model.forms.shown_controls);
    if (prepared.reply.one_call) order.text->end_by(end_of_first_call(prepared.reply));
    order.priority = fields.priority;
    order.deadlines = fields.deadlines;
    return order;
}

PreparedAnswers prepared_of(GenerationFields fields,
                            const std::vector<std::vector<TokenId>>& prompts,
                            const ServedModel& model,
                            GrammarRequest grammar,
                            ReplyFormat reply = {}) {
    PreparedAnswers prepared{.fields = std::move(fields),
                             .reply = std::move(reply),
                             .grammar = std::move(grammar.spec),
                             .grammar_field = std::move(grammar.field)};
    prepared.seed = prepared.fields.seed.value_or(drawn_seed());
    for (const std::vector<TokenId>& prompt : prompts) {
        prepared.prompt_tokens.push_back(static_cast<std::int32_t>(prompt.size()));
        for (int answer = 0; answer < prepared.fields.n; ++answer)
            prepared.orders.push_back(order_of(prompt, prepared, answer, model));
    }
    prepared.sampling = prepared.orders.front().request.sampling;
    if (prepared.fields.scores.scores.any()) prepared.tokenizer = &model.tokenizer();
    return prepared;
}

std::string text_of_tokens(const std::vector<TokenId>& ids, const ServedModel& model) {
    Detokenizer detokenizer{model.tokenizer()};
    std::string text;
    for (const TokenId id : ids) text += detokenizer.push(id);
    return text + detokenizer.finish();
}

ApiError no_resumption() {
    return bad_field("paceline.resume", "is for /v1/chat/completions and /v1/completions");
}

/// How the answers to a chat are read, whose prompt is `rendered`. Spans are those of the text as
/// the model wrote it.
ReplyFormat reply_format(const ChatRequest& chat,
                         std::string_view rendered,
                         const GenerationFields& fields,
                         const ServedModel& model) {
    ReplyFormat reply{.thoughts = model.forms.thoughts && !fields.spans};
    const std::size_t end = rendered.find_last_not_of(" \n");
    reply.begins_in_thought =
        reply.thoughts && end != rendered.npos && rendered.substr(0, end + 1).ends_with("<think>");
    if (chat.tools.none()) return reply;
    reply.tools = model.forms.tools;
    reply.one_call = !chat.tools.parallel;
    for (const ToolFunction& function : chat.tools.functions) {
        reply.names.push_back(function.name);
        if (reply.tools == ToolFormat::Xml) reply.parameters.push_back(parameter_texts(function));
    }
    return reply;
}

/// A build without grammars refuses what needs one; tools that may be called do without.
std::optional<ApiError> check_grammar(const GrammarRequest& asked, const GenerationFields& fields) {
    if (!asked.spec.any()) return {};
    if (!has_grammars())
        return not_implemented(asked.field, asked.field + ": " + no_grammars().what);
    if (fields.ignore_eos) return bad_field("ignore_eos", "is for answers without a grammar");
    return {};
}

/// Of answers that may or must call tools, beside what the request asks for itself.
GrammarRequest with_tools(GrammarRequest asked,
                          const ToolRequest& tools,
                          const ReplyFormat& reply,
                          const ServedModel& model) {
    if (tools.none() && !asked.spec.any()) return asked;
    const bool must_call = !tools.none() && tools.choice == ToolChoice::Required;
    if (!asked.spec.any() && !must_call && !has_grammars()) return asked;
    if (!asked.spec.any() || must_call) asked.field = must_call ? "tool_choice" : "tools";
    asked.spec = answer_grammar(reply, tools, asked.spec, model.forms.text_by_control);
    return asked;
}

/// llama.cpp's own API has no log probabilities here.
std::optional<ApiError> native_scores(const json& body) {
    for (const char* name : {"logprobs", "top_logprobs", "echo"}) {
        const json* given = Fields{body}.find(name);
        if (given == nullptr || *given == false || *given == 0) continue;
        return not_implemented(name, std::string{name} + ": is for /v1 endpoints");
    }
    return {};
}

/// An answer without tokens is for its prompt's echo.
std::optional<ApiError> no_tokens(const GenerationFields& fields) {
    if (fields.max_tokens != 0 || fields.scores.echo) return {};
    return bad_field("max_tokens", "0 is out of range without \"echo\", must be at least 1");
}

std::optional<ApiError> too_many(std::size_t prompts,
                                 const GenerationFields& fields,
                                 const ServedModel& model) {
    const std::size_t answers = prompts * static_cast<std::size_t>(fields.n);
    if (fields.resume && answers != 1)
        return bad_field("paceline.resume", "is for requests with one prompt and one answer");
    const auto possible =
        static_cast<std::size_t>(model.running) + static_cast<std::size_t>(model.waiting);
    const std::size_t most = std::min<std::size_t>(kChoicesMax, possible);
    if (answers <= most) return {};
    return bad_field(
        "n", fmt::format("{} answers are more than the {} that a request may have", answers, most));
}

}  // namespace

std::optional<ApiError> wrong_model(const std::string& name, const ServedModel& model) {
    if (name.empty() || name == model.name) return {};
    return ApiError{
        .status = 404,
        .message = "the model '" + visible(name) + "' does not run here; '" + model.name + "' does",
        .param = "model",
        .code = "model_not_found"};
}

std::vector<TokenId> encode_raw(std::string_view text, const ServedModel& model) {
    std::vector<TokenId> ids;
    if (const std::optional<TokenId> bos = model.tokenizer().prompt_bos()) ids.push_back(*bos);
    const std::vector<TokenId> encoded = model.tokenizer().encode(text, SpecialTokens::Parse);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    return ids;
}

ApiResult<jinja::Text> render_chat(const ChatRequest& chat, const ServedModel& model) {
    if (!model.chat)
        return ApiError{.status = 400,
                        .message = "the model has no chat template that can be used: " +
                                   visible(model.no_chat, kLineShownBytesMax) +
                                   "; /v1/completions works without",
                        .code = "no_chat_template"};
    const bool as_text = !model.forms.shows_tools;
    std::string messages = chat.messages;
    if (as_text && (!chat.tools.none() || messages.find("\"tool") != messages.npos)) {
        json read = json::parse(messages);
        tools_as_text(read, chat.tools.list);
        messages = read.dump();
    }
    const auto render = [&](CutArguments cut) {
        return model.chat->render_json(messages, as_text ? std::string{} : chat.tools.list,
                                       local_time(), chat.arguments, cut);
    };
    Result<jinja::Text> text = render(CutArguments::AsText);
    // A template that goes through the members of arguments cannot read a text.
    if (!text && messages.find("\"tool_calls\"") != messages.npos)
        text = render(CutArguments::AsEmpty);
    if (!text) return bad_field("messages", visible(text.error().what, kLineShownBytesMax));
    return std::move(text).value();
}

ApiResult<PreparedAnswers> prepare_chat(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return read.error();
    return prepare_chat_body(read.value(), model);
}

ApiResult<PreparedAnswers> prepare_chat_body(const json& body, const ServedModel& model) {
    ApiResult<GenerationFields> fields = common_fields(body, model);
    if (!fields) return fields.error();
    if (const auto error = too_many(1, fields.value(), model)) return *error;
    ApiResult<ScoresRequest> scores = chat_scores(body);
    if (!scores) return scores.error();
    fields.value().scores = scores.value();
    if (const auto error = no_tokens(fields.value())) return *error;
    ApiResult<GrammarRequest> grammar = grammar_request(body);
    if (!grammar) return grammar.error();
    ApiResult<ChatRequest> chat = chat_request(body);
    if (!chat) return chat.error();
    ApiResult<jinja::Text> text = render_chat(chat.value(), model);
    if (!text) return text.error();
    ReplyFormat reply = reply_format(chat.value(), text.value().bytes(), fields.value(), model);
    GrammarRequest language =
        with_tools(std::move(grammar.value()), chat.value().tools, reply, model);
    if (const auto error = check_grammar(language, fields.value())) return *error;
    std::vector<TokenId> prompt = encode(model.tokenizer(), text.value());
    if (const auto error = too_long("messages", prompt.size(), model)) return *error;
    GrammarSpec looser;
    if (language.field == "tools")
        looser = looser_tool_grammar(reply, chat.value().tools, model.forms.text_by_control);
    PreparedAnswers prepared = prepared_of(std::move(fields.value()), {std::move(prompt)}, model,
                                           std::move(language), std::move(reply));
    prepared.looser_grammar = std::move(looser);
    return prepared;
}

ApiResult<PreparedAnswers> prepare_responses(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return read.error();
    const auto metadata = read.value().find("metadata");
    if (metadata != read.value().end() && metadata->size() > kMetadataMax)
        return bad_field("metadata", fmt::format("has more than {} members", kMetadataMax));
    ApiResult<json> chat = chat_body_of_responses(read.value());
    if (!chat) return chat.error();
    ApiResult<PreparedAnswers> prepared = prepare_chat_body(chat.value(), model);
    if (!prepared) return prepared;
    if (prepared.value().fields.resume) return no_resumption();
    prepared.value().repeated = json_text(repeated_fields(read.value()));
    return prepared;
}

ApiResult<PreparedAnswers> prepare_messages(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return read.error();
    ApiResult<json> chat = chat_body_of_messages(read.value());
    if (!chat) return chat.error();
    ApiResult<PreparedAnswers> prepared = prepare_chat_body(chat.value(), model);
    if (prepared && prepared.value().fields.resume) return no_resumption();
    return prepared;
}

ApiResult<PreparedAnswers> prepare_completion(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return read.error();
    ApiResult<GenerationFields> fields = common_fields(read.value(), model);
    if (!fields) return fields.error();
    ApiResult<GrammarRequest> grammar = grammar_request(read.value());
    if (!grammar) return grammar.error();
    if (const auto error = check_grammar(grammar.value(), fields.value())) return *error;
    ApiResult<ScoresRequest> scores = completion_scores(read.value());
    if (!scores) return scores.error();
    fields.value().scores = scores.value();
    if (const auto error = no_tokens(fields.value())) return *error;
    if (!fields.value().max_tokens) fields.value().max_tokens = kCompletionTokensDefault;
    ApiResult<std::vector<CompletionPrompt>> given =
        completion_prompts(read.value(), model.vocab_size());
    if (!given) return given.error();
    if (const auto error = too_many(given.value().size(), fields.value(), model)) return *error;
    std::vector<std::vector<TokenId>> prompts;
    std::vector<EchoedPrompt> echoed;
    for (CompletionPrompt& each : given.value()) {
        auto* text = std::get_if<std::string>(&each);
        prompts.push_back(text != nullptr ? encode_raw(*text, model)
                                          : std::move(std::get<std::vector<TokenId>>(each)));
        if (const auto error = too_long("prompt", prompts.back().size(), model)) return *error;
        if (!fields.value().scores.echo) continue;
        echoed.push_back(
            {.text = text != nullptr ? std::move(*text) : text_of_tokens(prompts.back(), model),
             .ids = prompts.back()});
    }
    PreparedAnswers prepared =
        prepared_of(std::move(fields.value()), prompts, model, std::move(grammar.value()));
    prepared.echoed = std::move(echoed);
    return prepared;
}

ApiResult<PreparedAnswers> prepare_native(std::string_view body, const ServedModel& model) {
    ApiResult<json> read = read_json_object(body);
    if (!read) return read.error();
    ApiResult<json> common = with_common_names(read.value(), model);
    if (!common) return common.error();
    ApiResult<GenerationFields> given = common_fields(common.value(), model);
    if (!given) return given.error();
    GenerationFields& fields = given.value();
    if (fields.resume) return no_resumption();
    ApiResult<GrammarRequest> grammar = grammar_request(common.value());
    if (!grammar) return grammar.error();
    if (const auto error = check_grammar(grammar.value(), fields)) return *error;
    if (const auto error = native_scores(common.value())) return *error;
    if (const auto error = no_tokens(fields)) return *error;
    Fields own{read.value()};
    own.boolean("return_tokens", fields.return_tokens);
    own.texts("response_fields", fields.response_fields, kResponseFieldsMax,
              kResponseFieldBytesMax);
    if (own.error()) return *own.error();
    ApiResult<NativePrompts> prompts = native_prompts(read.value(), model);
    if (!prompts) return prompts.error();
    const std::vector<std::vector<TokenId>>& tokens = prompts.value().tokens;
    if (const auto error = too_many(tokens.size(), fields, model)) return *error;
    for (const std::vector<TokenId>& each : tokens) {
        if (const auto error = too_long("prompt", each.size(), model)) return *error;
    }
    PreparedAnswers prepared =
        prepared_of(std::move(fields), tokens, model, std::move(grammar.value()));
    prepared.prompt_is_list = prompts.value().list || prepared.fields.n > 1;
    return prepared;
}

}  // namespace paceline::serve
