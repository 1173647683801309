#include "launch/serve/http_dispatch.hpp"

#include <chrono>

#include "launch/api/health_report.hpp"
#include "launch/api/model_info.hpp"
#include "launch/api/token_endpoints.hpp"
#include "launch/serve/embedded_files.hpp"
#include "launch/serve/http_deep_health.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

Reply loading_reply() {
    return reply_of({.status = 503,
                     .message = "the model is being loaded",
                     .code = "loading",
                     .retry_after_s = 1});
}

/// Whether `name` is there and does not say no.
bool asks_for(const Route& route, std::string_view name) {
    const std::optional<std::string_view> value = query_value(route.query, name);
    return value && *value != "0" && *value != "false";
}

/// What the model and the engine say of themselves: needs neither pool nor stream.
Reply state_reply(const ServedModel& model, const Route& route) {
    switch (route.endpoint) {
        case Endpoint::Models:
            return models_reply(model);
        case Endpoint::Model:
            return model_reply(route.id, model);
        case Endpoint::Props:
            return props_reply(model);
        case Endpoint::Slots:
            return slots_reply(model, model.service->snapshot().running,
                               asks_for(route, "fail_on_no_slot"));
        case Endpoint::TokenizerInfo:
            return tokenizer_info_reply(model);
        default:
            return health_report(model.service->snapshot(), model.method->get(),
                                 std::chrono::steady_clock::now(), model.waits_for());
    }
}

/// What reads a body, on the pool.
Reply token_endpoint_reply(const Asked& asked, const ServedModel& model) {
    switch (asked.route.endpoint) {
        case Endpoint::Tokenize:
            return tokenize_reply(asked.body, model);
        case Endpoint::Detokenize:
            return detokenize_reply(asked.body, model);
        case Endpoint::ChatTokens:
            return chat_tokens_reply(asked.body, model);
        case Endpoint::ResponsesTokens:
            return responses_tokens_reply(asked.body, model);
        case Endpoint::MessagesTokens:
            return messages_tokens_reply(asked.body, model);
        default:
            return apply_template_reply(asked.body, model);
    }
}

}  // namespace

asio::awaitable<bool> answer_asked(HttpStream& stream,
                                   HttpContext& context,
                                   const Asked& asked,
                                   const ResponseTerms& terms) {
    HttpWriter writer{stream, context};
    const Route& route = asked.route;
    const ServedModel* model = context.model;
    Reply reply;
    if (route.endpoint == Endpoint::Version) {
        reply = version_reply();
    } else if (route.endpoint == Endpoint::Page) {
        reply = page_reply();
    } else if (route.endpoint == Endpoint::OpenApi) {
        reply = openapi_reply();
    } else if (route.endpoint == Endpoint::Metrics) {
        reply = {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                 .body = context.metrics.text(model)};
    } else if (model == nullptr) {
        reply = route.is_health() ? loading_health(context.waits_for) : loading_reply();
    } else if (route.is_answer()) {
        co_return co_await answer_request(stream, context, asked, terms);
    } else if (route.endpoint == Endpoint::Stream) {
        co_return co_await resume_stream(stream, context, asked, terms);
    } else if (route.takes_body()) {
        auto work = [&] { return token_endpoint_reply(asked, *model); };
        reply = co_await on_pool(context, work);
    } else if (route.is_health() && asks_for(route, "deep")) {
        reply = co_await deep_health(context);
    } else {
        reply = state_reply(*model, route);
    }
    co_return co_await writer.write(reply, terms);
}

}  // namespace paceline::serve
