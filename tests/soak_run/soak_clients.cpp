#include "tests/soak_run/soak_clients.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace paceline::testing {
namespace {

constexpr std::size_t kKeptMax = 16;        // conversations
constexpr std::uint64_t kLongRest = 8'000;  // orders, of which more than half are new requests
constexpr std::size_t kComplaintsMax = 8;
constexpr Position kTurnMax = 120;  // tokens that a turn may add: prompt and answer

}  // namespace

SoakClients::SoakClients(const SoakPlan& plan,
                         int vocab_size,
                         PipelineSession& session,
                         TokenGenerator& oracle,
                         std::function<void()> tick)
    : plan_{plan},
      vocab_size_{vocab_size},
      session_{session},
      oracle_{oracle},
      tick_{std::move(tick)},
      random_{plan.seed},
      streams_(static_cast<std::size_t>(plan.streams)) {}

void SoakClients::begin(SoakClock::time_point until) {
    until_ = until;
    progress_ = SoakClock::now();
    for (Stream& stream : streams_) ask(stream);
}

void SoakClients::cancel_due(SoakClock::time_point now) {
    for (Stream& stream : streams_) {
        if (!stream.open || stream.cancel != Cancel::Called || now < stream.cancel_when) continue;
        stream.ended_by_client = true;
        session_.cancel(*stream.request);  // its on_end asks the next one
    }
}

// ---- Asking

std::vector<TokenId> SoakClients::draw_text() {
    std::vector<TokenId> text(1 + below(60));
    // Half of the texts repeat themselves, so that a lookup finds something to propose.
    const std::size_t period = chance(50) ? text.size() : 1 + below(6);
    for (std::size_t i = 0; i < text.size(); ++i) {
        text[i] = i < period ? static_cast<TokenId>(below(static_cast<std::uint64_t>(vocab_size_)))
                             : text[i - period];
    }
    return text;
}

/// A third of the new texts begin with one of a few prompts, which the caches then share; the salt
/// of some keeps them apart.
void SoakClients::draw_prefix(Request& request) {
    if (!chance(33)) return;
    const std::uint64_t which = below(3);
    std::vector<TokenId> prefix;
    for (std::uint64_t i = 0; i < 40 + 30 * which; ++i)
        prefix.push_back(
            static_cast<TokenId>((7 * i + which) % static_cast<std::uint64_t>(vocab_size_)));
    request.text.insert(request.text.begin(), prefix.begin(), prefix.end());
    if (chance(25)) request.cache_salt = "another tenant";
}

void SoakClients::draw_speculation(SpeculationLimits& limits) {
    if (!chance(25)) return;
    limits.on = chance(60);
    limits.gamma = static_cast<std::int32_t>(below(4));
    limits.confidence_min = chance(30) ? 0.3F : 0.0F;
}

Request SoakClients::draw_request() {
    Request request;
    request.text = draw_text();
    draw_speculation(request.speculation);
    request.max_tokens = static_cast<std::int32_t>(1 + below(48));
    request.context = session_.context();
    if (chance(50)) {
        request.sampling.temperature = 0.5F + 0.1F * static_cast<float>(below(10));
        request.sampling.top_k = chance(50) ? 40 : 0;
        request.sampling.top_p = chance(50) ? 0.9F : 1.0F;
        request.sampling.repetition_penalty = chance(30) ? 1.1F : 1.0F;
        request.sampling.seed = random_();
    }
    if (chance(30)) {
        const auto end = static_cast<TokenId>(below(static_cast<std::uint64_t>(vocab_size_)));
        request.end_tokens = {end};
    }
    return request;
}

void SoakClients::draw_cancel(Stream& stream) {
    stream.cancel = Cancel::Never;
    const std::uint64_t kind = below(100);
    if (kind < 15) {
        stream.cancel = Cancel::AtToken;
        stream.cancel_at = 1 + below(20);
    } else if (kind < 35) {
        stream.cancel = kind < 25 ? Cancel::Polled : Cancel::Called;
        const auto scale = std::uint64_t{1} << below(10);  // as often short as long
        stream.cancel_when = SoakClock::now() + std::chrono::milliseconds{below(scale) + 1};
    }
}

/// A conversation to go on with, or nothing: then a new one begins.
std::vector<TokenId> SoakClients::take_kept(Stream& stream) {
    if (resting_ && orders_ >= rest_ends_) {
        stream.rested = true;
        return *std::exchange(resting_, std::nullopt);
    }
    if (kept_.empty() || !chance(40)) return {};
    const auto at = kept_.begin() + static_cast<std::ptrdiff_t>(below(kept_.size()));
    std::vector<TokenId> text = std::move(*at);
    kept_.erase(at);
    return text;
}

/// Decodes plainly what is going to be asked.
bool SoakClients::expect(Stream& stream, const Request& request) {
    stream.expected.clear();
    oracle_.reset();
    const CancelToken never;
    const auto on_token = [&stream](TokenId token) {
        stream.expected.push_back(token);
        return Go::On;
    };
    const Result<AnswerStats> plain = oracle_.run(request, on_token, never);
    if (!plain) complain("plain decoding failed: " + plain.error().what);
    return plain.ok();
}

void SoakClients::ask(Stream& stream) {
    stream.rested = false;
    std::vector<TokenId> before = take_kept(stream);
    if (static_cast<Position>(before.size()) + kTurnMax > session_.context()) before.clear();
    Request whole = draw_request();
    if (before.empty()) draw_prefix(whole);
    whole.text.insert(whole.text.begin(), before.begin(), before.end());
    if (!before.empty()) ++tally_.continued;
    if (chance(50)) whole.sampling.penalty_begin = static_cast<Position>(whole.text.size());
    stream.text = whole.text;
    AnswerOrder order;
    order.request = whole;
    if (stream.rested) ++tally_.long_rests;
    if (!expect(stream, whole)) return;
    draw_cancel(stream);
    stream.order = ++orders_;
    stream.given = 0;
    stream.ended_by_client = false;
    order.on_token = [this, &stream](TokenId token) { return take(stream, token); };
    order.on_end = [this, &stream](const AnswerStats& stats, const Status& status) {
        end(stream, stats, status);
    };
    order.cancelled = [this, &stream, number = stream.order] {
        tick_();  // which may have ended this answer and begun the next one
        if (number != stream.order || stream.cancel != Cancel::Polled) return false;
        if (SoakClock::now() >= stream.cancel_when) stream.ended_by_client = true;
        return stream.ended_by_client;
    };
    stream.open = true;
    const Result<RequestId> taken = session_.submit(std::move(order));
    if (!taken) {
        stream.open = false;
        return complain("an order was refused: " + taken.error().what);
    }
    stream.request = taken.value();
}

// ---- Answers

Go SoakClients::take(Stream& stream, TokenId token) {
    progress_ = SoakClock::now();
    ++tally_.tokens;
    if (plan_.bug == SoakBug::WrongToken && tally_.tokens == 500) ++token;
    const bool right =
        stream.given < stream.expected.size() && stream.expected[stream.given] == token;
    if (!right) {
        ++tally_.wrong;
        complain(fmt::format("request {}, token {}: {} came, plain decoding says {}",
                             stream.request ? stream.request->value : 0, stream.given, token,
                             stream.given < stream.expected.size()
                                 ? std::to_string(stream.expected[stream.given])
                                 : "that the answer is over"));
        stream.ended_by_client = true;
        return Go::Stop;
    }
    ++stream.given;
    stream.text.push_back(token);
    if (stream.cancel != Cancel::AtToken || stream.given < stream.cancel_at) return Go::On;
    stream.ended_by_client = true;
    return Go::Stop;
}

void SoakClients::end(Stream& stream, const AnswerStats& stats, const Status& status) {
    progress_ = SoakClock::now();
    stream.open = false;
    tally_.replays += stats.replays;
    tally_.preemptions += stats.preemptions;
    tally_.cached += static_cast<std::uint64_t>(stats.cached_tokens);
    const RequestId request = *stream.request;
    if (!status.ok()) {
        ++tally_.failed;
        complain(fmt::format("request {} failed: {}", request.value, status.error().what));
    } else if (stream.ended_by_client) {
        ++(stream.cancel == Cancel::AtToken ? tally_.stopped : tally_.cancelled);
    } else {
        ++tally_.whole;
        if (stream.given != stream.expected.size()) {
            ++tally_.wrong;
            complain(fmt::format("request {} ended after {} of {} tokens", request.value,
                                 stream.given, stream.expected.size()));
        }
    }
    session_.close(request);
    keep(std::move(stream.text), stream.rested);
    stream.rested = false;
    if (progress_ < until_) ask(stream);
}

void SoakClients::keep(std::vector<TokenId> text, bool rested) {
    // The same conversation does not rest twice: it would outgrow its context.
    if (plan_.parts.long_rest && !resting_ && !rested && text.size() < 64) {
        resting_ = std::move(text);
        rest_ends_ = orders_ + kLongRest;
        return;
    }
    if (rested || chance(40)) return;
    kept_.push_back(std::move(text));
    if (kept_.size() > kKeptMax) kept_.pop_front();
}

std::string SoakClients::open_text() const {
    std::string text;
    for (const Stream& stream : streams_) {
        if (!stream.open) continue;
        text += fmt::format("  request {}: {} of {} tokens{}\n",
                            stream.request ? stream.request->value : 0, stream.given,
                            stream.expected.size(),
                            stream.rested ? ", continued after a long rest" : "");
    }
    return text;
}

void SoakClients::complain(const std::string& sentence) {
    if (complaints_.size() < kComplaintsMax) complaints_.push_back(sentence);
}

}  // namespace paceline::testing
