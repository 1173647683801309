#include "launch/serve/http_answers.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "launch/api/answer_events.hpp"
#include "launch/api/model_info.hpp"
#include "launch/serve/answer_set.hpp"
#include "launch/serve/http_wakeup.hpp"

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
            .fingerprint = system_fingerprint()};
}

/// One request whose answers were accepted.
class Exchange {
public:
    Exchange(boost::beast::tcp_stream& stream,
             HttpContext& context,
             const ResponseTerms& terms,
             AnswerSet& set,
             AnswerEvents& events,
             bool streams)
        : context_{context},
          terms_{terms},
          set_{set},
          events_{events},
          streams_{streams},
          pause_{streams ? kStreamPause : kWholePause},
          writer_{stream, context},
          wakeup_{stream.socket()} {}

    asio::awaitable<bool> run() {
        for (const int descriptor : set_.descriptors()) wakeup_.watch(descriptor);
        if (streams_) {
            const bool begun = co_await writer_.begin_events(terms_);
            if (!begun) co_return false;
        }
        written_ = Clock::now();
        while (true) {
            std::string events;
            const bool news = take_news(events);
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
            if (streams_ && Clock::now() - written_ >= context_.limits.keep_alive) {
                const bool written = co_await write_some(kKeepAliveComment);
                if (!written) co_return false;
            }
            if (events.size() < kWriteBytes) co_await wakeup_.wait_until(next_look(news));
        }
    }

private:
    /// Whether there was something new.
    bool take_news(std::string& events) {
        bool news = false;
        while (events.size() < kWriteBytes && events_.status()) {
            const std::optional<AnswerSet::Next> next = set_.next();
            if (!next) break;
            news = true;
            events += events_.add(next->choice, next->piece);
            if (next->piece.over)
                context_.metrics.add_answer(next->piece.stats, Clock::now() - begun_);
        }
        return news;
    }

    /// After news the readers are silent for their pause.
    [[nodiscard]] Clock::time_point next_look(bool news) const {
        const auto now = Clock::now();
        Clock::time_point next = now + (news ? pause_ : std::chrono::milliseconds{kLook});
        if (streams_) next = std::min(next, written_ + context_.limits.keep_alive);
        return next;
    }

    asio::awaitable<bool> write_some(std::string_view events) {
        written_ = Clock::now();
        co_return co_await writer_.write_events(events, false);
    }

    asio::awaitable<bool> write_end(std::string events) {
        if (!streams_) {
            const Reply whole{.body = events_.body() + "\n"};
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
        if (!streams_) {
            const Reply reply = reply_of(error);
            co_return co_await writer_.write(reply, terms_);
        }
        events += AnswerEvents::error_event(error);
        const bool written = co_await writer_.write_events(events, true);
        if (!written) co_return false;
        co_return goes_on();
    }

    [[nodiscard]] bool goes_on() const { return terms_.keep_alive && !context_.draining; }

    HttpContext& context_;
    const ResponseTerms& terms_;
    AnswerSet& set_;
    AnswerEvents& events_;
    bool streams_;
    std::chrono::milliseconds pause_;
    HttpWriter writer_;
    Wakeup wakeup_;
    Clock::time_point begun_ = Clock::now();
    Clock::time_point written_ = begun_;
};

}  // namespace

asio::awaitable<bool> answer_request(boost::beast::tcp_stream& stream,
                                     HttpContext& context,
                                     Endpoint endpoint,
                                     const std::string& body,
                                     const ResponseTerms& terms) {
    HttpWriter writer{stream, context};
    const bool chat = endpoint == Endpoint::Chat;
    const ServedModel& model = *context.model;
    auto prepare = [&] {
        return chat ? prepare_chat(body, model) : prepare_completion(body, model);
    };
    ApiResult<PreparedAnswers> prepared = co_await on_pool(context, prepare);
    if (!prepared) {
        const Reply refused = reply_of(prepared.error());
        co_return co_await writer.write(refused, terms);
    }
    const bool streams = prepared.value().fields.stream;
    AnswerEvents events{chat ? chat_dialect() : completion_dialect(), head_of(context),
                        prepared.value()};
    ApiResult<AnswerSet> taken = submit_answers(*model.service, std::move(prepared.value().orders),
                                                streams ? kStreamPause : kWholePause);
    if (!taken) {
        const Reply refused = reply_of(taken.error());
        co_return co_await writer.write(refused, terms);
    }
    Exchange exchange{stream, context, terms, taken.value(), events, streams};
    co_return co_await exchange.run();
}

}  // namespace paceline::serve
