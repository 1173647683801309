#include "launch/serve/http_deep_health.hpp"

#include <chrono>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "actors/protocol/counters.hpp"
#include "launch/api/generation_fields.hpp"
#include "launch/api/health_report.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDecodeMax{10};
constexpr std::chrono::milliseconds kProbeLook{10};
constexpr std::chrono::seconds kResultHolds{1};

ServiceOrder one_token(const ServedModel& model) {
    ServiceOrder order;
    order.request.text = {model.tokenizer().prompt_bos().value_or(0)};
    order.request.max_tokens = 1;
    order.request.cache_salt = "paceline health";  // no other prompt's pages
    order.request.speculation.on = false;
    order.priority = -kPriorityMax;
    order.deadlines.answer = kDecodeMax;
    order.counted = false;
    return order;
}

/// While one probe decodes, others wait for its result; also if it ends with an exception.
class Running {
public:
    explicit Running(DeepHealth& deep) : deep_{deep} { deep_.runs = true; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() { deep_.runs = false; }

private:
    DeepHealth& deep_;
};

asio::awaitable<void> probe_pause() {
    asio::steady_timer timer{co_await asio::this_coro::executor, kProbeLook};
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

/// Tokens of answers, and rows of prompts: both of the engine's work.
std::uint64_t progress_of(const ServiceSnapshot& snapshot) {
    return snapshot.tokens + snapshot.usage.counter(counters::kPrefillRows);
}

/// Whether the engine decodes a token for this request, or works for another one.
asio::awaitable<bool> decodes(Service& service, const ServedModel& model) {
    const std::uint64_t before = progress_of(service.snapshot());
    const Submitted taken = service.submit(one_token(model));
    const auto until = Clock::now() + kDecodeMax;
    const auto decoded = [&] {
        const bool own = taken.stream && taken.stream->size() > 0;
        return own || progress_of(service.snapshot()) > before;
    };
    // A full queue refuses it; those that fill it are decoded.
    while (!decoded() && Clock::now() < until) {
        if (taken.stream && taken.stream->over()) break;
        co_await probe_pause();
    }
    const bool found = decoded();
    if (taken.outcome == SubmitOutcome::Accepted) service.cancel(taken.id);
    co_return found;
}

}  // namespace

asio::awaitable<Reply> deep_health(HttpContext& context) {
    const ServedModel& model = *context.model;
    Service& service = *model.service;
    DeepHealth& deep = context.deep;
    const auto shallow = [&] {
        return health_report(service.snapshot(), model.method->get(), Clock::now(),
                             model.waits_for());
    };
    Reply state = shallow();
    const bool changing = service.snapshot().state == ServiceState::Changing;  // it would wait
    if (state.status != 200 || changing) co_return state;
    while (deep.runs) co_await probe_pause();
    if (deep.ended == Clock::time_point{} || Clock::now() - deep.ended >= kResultHolds) {
        const Running running{deep};
        const auto begun = Clock::now();
        deep.decoded = co_await decodes(service, model);
        deep.ended = Clock::now();
        deep.took = std::chrono::duration_cast<std::chrono::milliseconds>(deep.ended - begun);
    }
    state = shallow();
    if (state.status != 200) co_return state;
    co_return deep_health_report(service.snapshot(), model.method->get(), deep.decoded, deep.took,
                                 model.waits_for());
}

}  // namespace paceline::serve
