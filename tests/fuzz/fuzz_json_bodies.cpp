// Fuzzes the bodies of requests to `paceline serve`: the input is a byte that chooses the endpoint,
// and a body. What is refused is refused with an error that can be sent; what is accepted is orders
// that the engine takes: tokens of the vocabulary, within the context, with valid sampling.
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "ipc/base/utf8.hpp"
#include "launch/api/prepare_answers.hpp"
#include "launch/api/reply.hpp"
#include "launch/api/token_endpoints.hpp"
#include "launch/load/model_use.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::string_view kValues[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "0.5",
    "1e3",
    "1e999",
    "64",
    "16",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775809",
    "\"\"",
    "\"on\"",
    "\"off\"",
    "\"plain\"",
    "\"m\"",
    "\"text\"",
    "\"a\\u0000b\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"\xc3\xa9\"",
    "\"\xff\"",
    "\"<|im_end|>\"",
    "[]",
    "{}",
    "[1,2,3]",
    "[\"a\",\"b\"]",
    "[[1,2],\"c\"]",
    "{\"5\":-100}",
    "{\"include_usage\":true}",
    "{\"speculation\":\"off\",\"gamma\":2}",
    "[{\"role\":\"user\",\"content\":\"x\"}]",
    "[{\"type\":\"text\",\"text\":\"y\"}]",
    "[{\"type\":\"image_url\"}]",
    "\"auto\"",
    "\"required\"",
    "{\"type\":\"any\"}",
    "{\"type\":\"tool\",\"name\":\"f\"}",
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"parameters\":{\"type\":\"object\"}}}]",
    "[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"web\"}]",
    "[{\"name\":\"f\",\"input_schema\":{}}]",
    "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}",
    "{\"type\":\"json_object\"}",
    "{\"choice\":[\"a\"]}",
    "{\"format\":{\"type\":\"json_object\"}}",
    "{\"effort\":\"low\"}"};
constexpr std::string_view kNames[] = {"messages",
                                       "prompt",
                                       "model",
                                       "stream",
                                       "stream_options",
                                       "n",
                                       "stop",
                                       "seed",
                                       "max_tokens",
                                       "max_completion_tokens",
                                       "ignore_eos",
                                       "cache_salt",
                                       "priority",
                                       "temperature",
                                       "top_p",
                                       "min_p",
                                       "top_k",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "repetition_penalty",
                                       "logit_bias",
                                       "paceline",
                                       "chat_template_kwargs",
                                       "content",
                                       "tokens",
                                       "add_special",
                                       "parse_special",
                                       "with_pieces",
                                       "return_token_strs",
                                       "logprobs",
                                       "tools",
                                       "response_format",
                                       "echo",
                                       "top_logprobs",
                                       "tool_choice",
                                       "parallel_tool_calls",
                                       "reasoning_effort",
                                       "grammar",
                                       "json_schema",
                                       "structured_outputs",
                                       "guided_json",
                                       "input",
                                       "instructions",
                                       "max_output_tokens",
                                       "previous_response_id",
                                       "text",
                                       "reasoning",
                                       "store",
                                       "system",
                                       "stop_sequences",
                                       "thinking",
                                       "output_config"};
constexpr std::string_view kNeeded[] = {
    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me\"}]",
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be "
    "brief.\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
    "\"text\":\"a\"}]},{\"role\":\"assistant\",\"content\":null},{\"role\":\"user\",\"content\":"
    "\"b\"}]",
    "\"prompt\":\"one two\"",
    "\"prompt\":[\"one\",[5,6,7]]",
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"reasoning\":"
    "\"r\","
    "\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":"
    "\"tool\",\"tool_call_id\":\"1\",\"content\":\"y\"}]",
    "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]},{\"role\":"
    "\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},{\"type\":\"tool_use\","
    "\"id\":"
    "\"1\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_"
    "result\","
    "\"tool_use_id\":\"1\",\"content\":\"y\"}]}]",
    "\"input\":[{\"role\":\"user\",\"content\":\"x\"},{\"type\":\"reasoning\",\"summary\":[]},{"
    "\"type\":"
    "\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
    "\"function_call_output\",\"call_id\":\"1\",\"output\":\"y\"}]",
    "\"input\":\"x\"",
    "\"content\":\"h\xc3\xa9llo\"",
    "\"tokens\":[5,6,7]"};
constexpr int kContext = 256;

serve::ServedModel tiny_model() {
    ModelOptions options;
    options.model = PACELINE_FIXTURES "/models/tiny-chat.gguf";
    Result<OpenedModel> opened = open_model(options, Environment{}, {.remarks = false});
    PACE_CHECK(opened.ok(), "the model cannot be opened");
    serve::ServedModel model{std::move(opened).value()};
    Result<ChatTemplate> chat = chat_template_of(model.opened.file);
    PACE_CHECK(chat.ok(), "the model has no chat template");
    model.chat = std::move(chat).value();
    model.name = "m";
    model.method->set({.name = "pearl"});
    model.context = kContext;
    model.running = 4;
    model.waiting = 60;
    return model;
}

void check(const serve::ApiError& error) {
    PACE_CHECK(error.status == 400 || error.status == 404 || error.status == 501, "another status");
    PACE_CHECK(!error.message.empty() && error.message.size() < 4096, "no message, or a long one");
    const std::string body = serve::reply_of(error).body;
    PACE_CHECK(utf8::valid_prefix(body) == body.size(), "no UTF-8");
    PACE_CHECK(nlohmann::json::parse(body).contains("error"), "no error");
}

void check(const serve::PreparedAnswers& made, const serve::ServedModel& model) {
    const std::size_t n = static_cast<std::size_t>(made.fields.n);
    PACE_CHECK(made.orders.size() == made.prompt_tokens.size() * n, "another number of answers");
    PACE_CHECK(!made.orders.empty() && made.orders.size() <= serve::kChoicesMax,
               "too many answers");
    for (const ServiceOrder& order : made.orders) {
        Request request = order.request;
        request.context = kContext;  // the session's part
        request.grammar = {};        // the helpers' part: it is not compiled here
        PACE_CHECK(validate(request, model.vocab_size(), kContext).ok(),
                   "a request that the engine refuses");
        PACE_CHECK(order.text.has_value(), "no text");
    }
}

void check(const serve::Reply& reply) {
    PACE_CHECK(
        reply.status == 200 || reply.status == 400 || reply.status == 404 || reply.status == 501,
        "another status");
    PACE_CHECK(utf8::valid_prefix(reply.body) == reply.body.size(), "no UTF-8");
    PACE_CHECK(nlohmann::json::accept(reply.body), "no JSON");
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    std::string text(1, static_cast<char>(random.next()));
    text += "{";
    text += kNeeded[random.below(std::size(kNeeded))];
    for (std::uint32_t i = random.below(5); i > 0; --i) {
        text += ",\"";
        text += kNames[random.below(std::size(kNames))];
        text += "\":";
        text += kValues[random.below(std::size(kValues))];
    }
    if (random.one_in(50)) text += ",\"x\":" + std::string(40, '[') + std::string(40, ']');
    text += "}";
    return {text.begin(), text.end()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const serve::ServedModel model = tiny_model();
    if (size == 0) return 0;
    const std::string_view body{reinterpret_cast<const char*>(data) + 1, size - 1};
    using Prepare =
        serve::ApiResult<serve::PreparedAnswers> (*)(std::string_view, const serve::ServedModel&);
    using Answer = serve::Reply (*)(std::string_view, const serve::ServedModel&);
    constexpr Prepare kPrepare[] = {serve::prepare_chat, serve::prepare_completion,
                                    serve::prepare_responses, serve::prepare_messages,
                                    serve::prepare_native};
    constexpr Answer kAnswer[] = {serve::tokenize_reply,         serve::detokenize_reply,
                                  serve::apply_template_reply,   serve::chat_tokens_reply,
                                  serve::responses_tokens_reply, serve::messages_tokens_reply};
    const std::size_t endpoint = data[0] % (std::size(kPrepare) + std::size(kAnswer));
    if (endpoint >= std::size(kPrepare)) {
        check(kAnswer[endpoint - std::size(kPrepare)](body, model));
        return 0;
    }
    serve::ApiResult<serve::PreparedAnswers> made = kPrepare[endpoint](body, model);
    if (!made) {
        check(made.error());
    } else {
        check(made.value(), model);
    }
    return 0;
}
