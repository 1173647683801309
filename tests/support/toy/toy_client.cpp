#include "tests/support/toy/toy_client.hpp"

#include <algorithm>
#include <utility>

namespace paceline::testing {

ToyClient::ToyClient(ConductorActor& conductor, ToyLoad load)
    : conductor_{conductor}, load_{std::move(load)} {
    for (int i = 0; i < load_.texts; ++i) {
        const std::uint64_t seed = load_.seed * 1000 + static_cast<std::uint64_t>(i);
        Text text{toy_request(seed, load_.max_tokens), {}};
        if (load_.sampled) make_toy_sampled(text.request, seed);
        text.answer = toy_answer(text.request);
        texts_.push_back(std::move(text));
    }
}

void ToyClient::on_start(StageContext& context) {
    context_ = &context;
    context.schedule(Micros{0}, [this] { tick(); });
}

void ToyClient::handle(StageId /*from*/, std::uint16_t /*kind*/, std::span<const std::byte>) {}
/// Closes what has ended, orders anew, and ends the loop when there is nothing left to wait for.
void ToyClient::tick() {
    for (auto entry = streams_.begin(); entry != streams_.end();) {
        const bool ended = entry->second->ended;
        if (ended) conductor_.close(entry->first);
        entry = ended ? streams_.erase(entry) : std::next(entry);
    }
    const int wanted = std::max(load_.answers, load_.streams);
    const auto open = [this] { return static_cast<int>(streams_.size()); };
    while (open() < load_.streams && failures_.empty() && complaints_.empty() &&
           (ordered_ < wanted || (load_.more && load_.more()))) {
        order();
    }
    if (streams_.empty()) {
        conductor_.leave();
        return;
    }
    context_->schedule(load_.tick, [this] { tick(); });
}

void ToyClient::order() {
    auto stream = std::make_shared<Stream>();
    stream->text = &texts_[static_cast<std::size_t>(ordered_) % texts_.size()];
    ++ordered_;
    AnswerOrder order;
    order.request = stream->text->request;
    order.on_token = [this, stream](TokenId token) { return take(*stream, token); };
    order.on_end = [this, stream](const AnswerStats& stats, const Status& status) {
        end(*stream, stats, status);
    };
    const Result<RequestId> id = conductor_.submit(std::move(order));
    if (!id) {
        failures_.push_back(id.error());
        return;
    }
    streams_[id.value()] = stream;
}

Go ToyClient::take(Stream& stream, TokenId token) {
    ++tokens_;
    if (on_token) on_token(context_->now());
    const std::vector<TokenId>& answer = stream.text->answer;
    const bool right = stream.got < answer.size() && answer[stream.got] == token;
    if (!right && !stream.wrong) {
        stream.wrong = true;
        complaints_.push_back("token " + std::to_string(stream.got) + " of " +
                              std::to_string(answer.size()) + " is " + std::to_string(token) +
                              (stream.got < answer.size()
                                   ? " instead of " + std::to_string(answer[stream.got])
                                   : " and after the end"));
    }
    if (stream.ended) complaints_.emplace_back("a token came after the end");
    ++stream.got;
    return Go::On;
}

void ToyClient::end(Stream& stream, const AnswerStats& stats, const Status& status) {
    if (stream.ended) complaints_.emplace_back("an answer ended twice");
    stream.ended = true;
    replays_ += stats.replays;
    if (!status) {
        failures_.push_back(status.error());
        return;
    }
    if (stream.got != stream.text->answer.size()) {
        complaints_.push_back("an answer of " + std::to_string(stream.text->answer.size()) +
                              " tokens ended after " + std::to_string(stream.got));
        return;
    }
    if (!stream.wrong) ++answered_;
}

}  // namespace paceline::testing
