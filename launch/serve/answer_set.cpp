#include "launch/serve/answer_set.hpp"

#include <utility>

#include "model/weights/message_text.hpp"

namespace paceline::serve {

AnswerSet::~AnswerSet() {
    for (const Answer& answer : answers_) {
        if (answer.owned && !answer.over) service_->cancel(answer.id);
    }
}

void AnswerSet::add(const Submitted& taken, std::chrono::milliseconds pause) {
    answers_.push_back({.id = taken.id,
                        .stream = taken.stream,
                        .reader = std::make_unique<AnswerReader>(taken.stream, 0, pause)});
    ++open_;
}

void AnswerSet::follow(std::shared_ptr<AnswerStream> stream,
                       std::size_t begin,
                       std::chrono::milliseconds pause) {
    answers_.push_back({.id = {},
                        .stream = stream,
                        .reader = std::make_unique<AnswerReader>(stream, begin, pause),
                        .owned = false});
    ++open_;
}

std::optional<AnswerSet::Next> AnswerSet::next() {
    for (std::size_t i = 0; i < answers_.size(); ++i) {
        const std::size_t choice = (turn_ + i) % answers_.size();
        Answer& answer = answers_[choice];
        if (answer.over) continue;
        AnswerPiece piece = answer.reader->read();
        if (piece.ids.empty() && !piece.over) continue;
        if (piece.over) {
            answer.over = true;
            --open_;
        }
        turn_ = choice + 1;
        Next next{.choice = choice, .piece = std::move(piece)};
        if (!std::exchange(answer.begun, true)) next.prompt_scores = answer.stream->prompt_scores();
        return next;
    }
    return {};
}

std::vector<int> AnswerSet::descriptors() const {
    std::vector<int> found;
    for (const Answer& answer : answers_) {
        if (!answer.over) found.push_back(answer.reader->descriptor());
    }
    return found;
}

ApiResult<AnswerSet> submit_answers(Service& service,
                                    std::vector<ServiceOrder> orders,
                                    std::chrono::milliseconds pause) {
    AnswerSet set{service};
    for (ServiceOrder& order : orders) {
        const Submitted taken = service.submit(std::move(order));
        if (taken.outcome != SubmitOutcome::Accepted) return error_of(taken);
        set.add(taken, pause);
    }
    return set;
}

ApiError error_of(const Submitted& refused) {
    const std::string& why = refused.why.error().what;
    switch (refused.outcome) {
        case SubmitOutcome::QueueFull:
            return {.status = 429, .message = why, .code = "queue_full", .retry_after_s = 1};
        case SubmitOutcome::Draining:
            return {
                .status = 503, .message = why, .code = "server_shutting_down", .retry_after_s = 5};
        case SubmitOutcome::Invalid:
            return {.status = 400, .message = visible(why, kLineShownBytesMax)};
        default:
            return {.status = 503,
                    .message = "the pipeline has failed: " + visible(why, kLineShownBytesMax),
                    .code = "pipeline_failed",
                    .retry_after_s = 30};
    }
}

ApiError error_of(const Status& failed, ServiceState state) {
    const Error& error = failed.error();
    const std::string what = visible(error.what, kLineShownBytesMax);
    if (error.code == Errc::Cancelled && state == ServiceState::Draining)
        return {.status = 503, .message = what, .code = "server_shutting_down", .retry_after_s = 5};
    if (error.code == Errc::Cancelled)
        return {.status = 503, .message = what, .code = "deadline", .retry_after_s = 1};
    if (error.code == Errc::PeerGone)
        return {.status = 503,
                .message = "the pipeline has failed: " + what,
                .code = "pipeline_failed",
                .retry_after_s = 30};
    return {.status = 500, .message = what, .code = "answer_failed"};
}

}  // namespace paceline::serve
