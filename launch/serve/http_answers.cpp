#include "launch/serve/http_answers.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <utility>

#include "launch/api/answer_events.hpp"
#include "launch/api/messages/messages_events.hpp"
#include "launch/api/model_info.hpp"
#include "launch/api/native_events.hpp"
#include "launch/api/responses/responses_events.hpp"
#include "launch/serve/answer_set.hpp"
#include "launch/serve/http_grammar.hpp"
#include "launch/serve/http_wakeup.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

using Clock = Wakeup::Clock;

/// Between two events of a stream; what is not streamed needs the end alone.
constexpr std::chrono::milliseconds kStreamPause{5};
constexpr std::chrono::milliseconds kWholePause{250};
constexpr std::chrono::seconds kLook{1};  // at least so often the client is looked at
constexpr std::size_t kWriteBytes = 64 * 1024;

ResponseHead head_of(HttpContext& context) {
    const ServedModel& model = *context.model;
    return {.id = fmt::format("{}{:06x}", context.run_id, ++context.requests),
            .created = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count(),
            .model = model.name,
            .method = model.method,
            .gamma = model.gamma,
            .fingerprint = system_fingerprint()};
}

struct StreamTerms {
    bool on = false;       // else one body
    std::string id = {};   // empty: it cannot be resumed
    bool resumed = false;  // the answer's times are not those of this request
};

/// One request whose answers were accepted.
class Exchange {
public:
    Exchange(HttpStream& stream,
             HttpContext& context,
             const ResponseTerms& terms,
             AnswerSet& set,
             ResponseForm& events,
             StreamTerms streams)
        : context_{context},
          terms_{terms},
          set_{set},
          events_{events},
          streams_{std::move(streams)},
          pause_{streams_.on ? kStreamPause : kWholePause},
          writer_{stream, context},
          wakeup_{stream.socket()} {}

    asio::awaitable<bool> run() {
        for (const int descriptor : set_.descriptors()) wakeup_.watch(descriptor);
        if (streams_.on) {
            const bool begun = co_await writer_.begin_events(terms_, streams_.id);
            if (!begun) co_return false;
            const std::string first = events_.begin();
            if (!first.empty()) {
                const bool written = co_await write_some(first);
                if (!written) co_return false;
            }
        }
        written_ = Clock::now();
        while (true) {
            std::string events;
            const bool news = co_await take_news(events);
            if (!events_.status()) co_return co_await write_failure(std::move(events));
            if (set_.over()) co_return co_await write_end(std::move(events));
            if (!events.empty()) {
                const bool written = co_await write_some(events);
                if (!written) co_return false;
            }
            if (wakeup_.client_closed()) {
                context_.metrics.add_disconnect();
                co_return false;
            }
            if (streams_.on && Clock::now() - written_ >= context_.limits.keep_alive) {
                const bool written = co_await write_some(kKeepAliveComment);
                if (!written) co_return false;
            }
            if (events.size() < kWriteBytes) co_await wakeup_.wait_until(next_look(news));
        }
    }

private:
    /// Whether there was something new.
    asio::awaitable<bool> take_news(std::string& events) {
        bool news = false;
        while (events.size() < kWriteBytes && events_.status()) {
            const std::optional<AnswerSet::Next> next = set_.next();
            if (!next) break;
            news = true;
            const std::string made = co_await read(*next);
            events += made;
            if (next->piece.over && !streams_.resumed)
                context_.metrics.add_answer(next->piece.stats, Clock::now() - begun_);
        }
        co_return news;
    }

    /// The log probabilities of a long prompt are megabytes of JSON, which the pool makes.
    asio::awaitable<std::string> read(const AnswerSet::Next& next) {
        if (next.prompt_scores.empty()) co_return events_.add(next.choice, next.piece);
        has_prompt_scores_ = true;
        auto both = [&] {
            events_.add_prompt(next.choice, next.prompt_scores);
            return events_.add(next.choice, next.piece);
        };
        std::string made = co_await on_pool(context_, both);
        co_return made;
    }

    asio::awaitable<std::string> whole_body() {
        if (!has_prompt_scores_) co_return events_.body() + "\n";
        auto make = [&] { return events_.body() + "\n"; };
        std::string made = co_await on_pool(context_, make);
        co_return made;
    }

    /// After news the readers are silent for their pause.
    [[nodiscard]] Clock::time_point next_look(bool news) const {
        const auto now = Clock::now();
        Clock::time_point next = now + (news ? pause_ : std::chrono::milliseconds{kLook});
        if (streams_.on) next = std::min(next, written_ + context_.limits.keep_alive);
        return next;
    }

    asio::awaitable<bool> write_some(std::string_view events) {
        written_ = Clock::now();
        co_return co_await writer_.write_events(events, false);
    }

    asio::awaitable<bool> write_end(std::string events) {
        if (!streams_.on) {
            std::string body = co_await whole_body();
            const Reply whole{.body = std::move(body)};
            co_return co_await writer_.write(whole, terms_);
        }
        events += events_.end();
        const bool written = co_await writer_.write_events(events, true);
        if (!written) co_return false;
        co_return goes_on();
    }

    asio::awaitable<bool> write_failure(std::string events) {
        const ServiceState state = context_.model->service->snapshot().state;
        const ApiError error = error_of(events_.status(), state);
        if (!streams_.on) {
            const Reply reply = reply_of(error);
            co_return co_await writer_.write(reply, terms_);
        }
        events += events_.failure(error);
        const bool written = co_await writer_.write_events(events, true);
        if (!written) co_return false;
        co_return goes_on();
    }

    [[nodiscard]] bool goes_on() const { return terms_.keep_alive && !context_.draining; }

    HttpContext& context_;
    const ResponseTerms& terms_;
    AnswerSet& set_;
    ResponseForm& events_;
    StreamTerms streams_;
    std::chrono::milliseconds pause_;
    bool has_prompt_scores_ = false;
    HttpWriter writer_;
    Wakeup wakeup_;
    Clock::time_point begun_ = Clock::now();
    Clock::time_point written_ = begun_;
};

/// The place in the stream that a client asks for; the header counts more: a browser that comes
/// back repeats the query of its first request.
ApiResult<std::size_t> place_of(const Asked& asked, const AnswerStream& answer) {
    const std::string_view given = !asked.last_event_id.empty()
                                       ? std::string_view{asked.last_event_id}
                                       : query_value(asked.route.query, "from").value_or("0");
    std::size_t from = 0;
    const auto parsed = std::from_chars(given.data(), given.data() + given.size(), from);
    const bool whole = parsed.ec == std::errc{} && parsed.ptr == given.data() + given.size();
    // Before size(): an answer that is over does not grow.
    const std::size_t beyond = answer.over() ? 1 : 0;
    if (whole && from <= answer.size() + beyond) return from;
    return bad_field("from", "must be the id of an event of the stream");
}

ApiResult<PreparedAnswers> prepare_answers(const Asked& asked, const ServedModel& model) {
    switch (asked.route.endpoint) {
        case Endpoint::Chat:
            return prepare_chat(asked.body, model);
        case Endpoint::Native:
            return prepare_native(asked.body, model);
        case Endpoint::Responses:
            return prepare_responses(asked.body, model);
        case Endpoint::Messages:
            return prepare_messages(asked.body, model);
        default:
            return prepare_completion(asked.body, model);
    }
}

const AnswerDialect& dialect_of(const Asked& asked) {
    return asked.route.endpoint == Endpoint::Chat ? chat_dialect() : completion_dialect();
}

std::unique_ptr<ResponseForm> form_of(const Asked& asked,
                                      ResponseHead head,
                                      const PreparedAnswers& prepared) {
    switch (asked.route.endpoint) {
        case Endpoint::Native:
            return std::make_unique<NativeEvents>(std::move(head), prepared);
        case Endpoint::Responses:
            return std::make_unique<ResponsesEvents>(std::move(head), prepared);
        case Endpoint::Messages:
            return std::make_unique<MessagesEvents>(std::move(head), prepared);
        default:
            return std::make_unique<AnswerEvents>(dialect_of(asked), std::move(head), prepared);
    }
}

/// What a request is told while the engine recovers for too long; those that were taken wait.
std::optional<ApiError> recovering(const HttpContext& context) {
    const ServiceSnapshot engine = context.model->service->snapshot();
    if (engine.state != ServiceState::Recovering) return {};
    if (Clock::now() - engine.recovering_since < context.limits.recovery) return {};
    return ApiError{.status = 503,
                    .message = "the pipeline waits for a lost stage: " +
                               visible(engine.why, kLineShownBytesMax),
                    .code = "recovering",
                    .retry_after_s = 5};
}

KeptStreams::Clock::time_point now() {
    return KeptStreams::Clock::now();
}

/// The stream from its beginning, or from token `resumed_at` on.
asio::awaitable<bool> follow_stream(HttpStream& stream,
                                    HttpContext& context,
                                    const ResponseTerms& terms,
                                    const KeptStream& kept,
                                    std::optional<std::size_t> resumed_at) {
    const std::string id = kept.dialect->id_prefix + kept.head.id;
    const StreamReading reading{context.streams, id};
    AnswerEvents events{*kept.dialect, kept.head, kept.prepared};
    const std::size_t from = resumed_at.value_or(0);
    events.begin_at(from);
    AnswerSet set{*context.model->service};
    // Thoughts, calls and the offsets of scored tokens are read from the beginning of the text.
    const bool reads_again = !kept.prepared.reply.is_plain() || kept.prepared.tokenizer != nullptr;
    set.follow(kept.answer, reads_again ? 0 : from, kStreamPause);
    Exchange exchange{stream, context, terms, set, events, {true, id, resumed_at.has_value()}};
    co_return co_await exchange.run();
}

asio::awaitable<bool> answer_resumable(HttpStream& stream,
                                       HttpContext& context,
                                       const ResponseTerms& terms,
                                       KeptStream kept) {
    HttpWriter writer{stream, context};
    if (context.streams.keep().count() == 0) {
        const Reply refused = reply_of(
            bad_field("paceline.resume", "this server keeps no streams (its option is --resume)"));
        co_return co_await writer.write(refused, terms);
    }
    Service& service = *context.model->service;
    const Submitted taken = service.submit(std::move(kept.prepared.orders.front()));
    kept.prepared.orders.clear();
    if (taken.outcome != SubmitOutcome::Accepted) {
        const Reply refused = reply_of(error_of(taken));
        co_return co_await writer.write(refused, terms);
    }
    kept.head.id = random_stream_id();
    kept.answer = taken.stream;
    kept.cancel = [&service, id = taken.id] { service.cancel(id); };
    const std::string id = kept.dialect->id_prefix + kept.head.id;
    const std::string owner = kept.owner;
    context.streams.add(id, std::move(kept), now());
    const std::shared_ptr<const KeptStream> own = context.streams.find(id, owner);
    co_return co_await follow_stream(stream, context, terms, *own, {});
}

}  // namespace

asio::awaitable<bool> answer_request(HttpStream& stream,
                                     HttpContext& context,
                                     const Asked& asked,
                                     const ResponseTerms& terms) {
    HttpWriter writer{stream, context};
    const ServedModel& model = *context.model;
    if (const std::optional<ApiError> recovers = recovering(context)) {
        const Reply refused = reply_of(*recovers);
        co_return co_await writer.write(refused, terms);
    }
    auto prepare = [&] { return prepare_answers(asked, model); };
    ApiResult<PreparedAnswers> prepared = co_await on_pool(context, prepare);
    if (!prepared) {
        const Reply refused = reply_of(prepared.error());
        co_return co_await writer.write(refused, terms);
    }
    const std::optional<ApiError> no_grammar =
        co_await compile_for(prepared.value(), stream, context);
    if (no_grammar) {
        const Reply refused = reply_of(*no_grammar);
        co_return co_await writer.write(refused, terms);
    }
    if (prepared.value().fields.resume) {
        KeptStream kept{.dialect = &dialect_of(asked),
                        .head = head_of(context),
                        .prepared = std::move(prepared.value()),
                        .owner = asked.owner};
        co_return co_await answer_resumable(stream, context, terms, std::move(kept));
    }
    const bool streams = prepared.value().fields.stream;
    const std::unique_ptr<ResponseForm> events = form_of(asked, head_of(context), prepared.value());
    ApiResult<AnswerSet> taken = submit_answers(*model.service, std::move(prepared.value().orders),
                                                streams ? kStreamPause : kWholePause);
    if (!taken) {
        const Reply refused = reply_of(taken.error());
        co_return co_await writer.write(refused, terms);
    }
    Exchange exchange{stream, context, terms, taken.value(), *events, {.on = streams}};
    co_return co_await exchange.run();
}

asio::awaitable<bool> resume_stream(HttpStream& stream,
                                    HttpContext& context,
                                    const Asked& asked,
                                    const ResponseTerms& terms) {
    HttpWriter writer{stream, context};
    const std::shared_ptr<const KeptStream> kept =
        context.streams.find(asked.route.id, asked.owner);
    if (!kept) {
        const Reply unknown = reply_of({.status = 404,
                                        .message = "there is no such stream, or no longer",
                                        .param = "id",
                                        .code = "stream_not_found"});
        co_return co_await writer.write(unknown, terms);
    }
    ApiResult<std::size_t> from = place_of(asked, *kept->answer);
    if (!from) {
        const Reply refused = reply_of(from.error());
        co_return co_await writer.write(refused, terms);
    }
    co_return co_await follow_stream(stream, context, terms, *kept, from.value());
}

}  // namespace paceline::serve
