#include "launch/api/answer_events.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/text_spans.hpp"

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

/// The texts are UTF-8 already; a byte that is none must not end the server.
std::string dumped(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event(const Json& json) {
    return "data: " + dumped(json) + "\n\n";
}

}  // namespace

AnswerEvents::AnswerEvents(const AnswerDialect& dialect,
                           ResponseHead head,
                           const PreparedAnswers& prepared)
    : dialect_{&dialect},
      head_{std::move(head)},
      stream_{prepared.fields.stream},
      include_usage_{prepared.fields.include_usage},
      continuous_usage_{prepared.fields.continuous_usage},
      spans_{prepared.fields.spans},
      report_{prepared.prompt_tokens, prepared.fields.n, prepared.seed, head_.method},
      choices_(prepared.orders.size()),
      open_{choices_.size()} {}

Json AnswerEvents::frame(const char* object) const {
    return {{"id", dialect_->id_prefix + head_.id},
            {"object", object},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", head_.fingerprint}};
}

std::string AnswerEvents::chunk(Json choice, bool very_last, const AnswerPiece* of) const {
    Json json = frame(dialect_->chunk_object);
    json["choices"] = Json::array({std::move(choice)});
    if (continuous_usage_) {
        json["usage"] = report_.usage();
    } else if (include_usage_) {
        json["usage"] = nullptr;
    }
    if (spans_ && of != nullptr) json["paceline"]["spans"] = text_spans(*of);
    if (very_last && !include_usage_) json["paceline"] = report_.paceline();
    return event(json);
}

void AnswerEvents::finish(std::size_t choice, const AnswerPiece& piece) {
    --open_;
    report_.add(choice, piece.stats);
    choices_[choice].finish = finish_reason(piece.stats.finish);
    if (!piece.status) {
        status_ = piece.status;
    } else if (choices_[choice].finish == nullptr) {
        status_ =
            Error{piece.stats.finish == FinishReason::Failed ? Errc::BadFile : Errc::Cancelled,
                  piece.stats.finish == FinishReason::Failed
                      ? "no token can be drawn: no logit is a finite number"
                      : "the answer was cancelled"};
    }
}

std::string AnswerEvents::add(std::size_t choice, const AnswerPiece& piece) {
    Choice& own = choices_[choice];
    report_.add_tokens(piece.ids.size());
    std::string events;
    if (stream_) {
        if (!std::exchange(own.begun, true) && dialect_->first != nullptr)
            events += chunk(dialect_->first(choice), false);
        if (!piece.text.empty())
            events += chunk(dialect_->delta(choice, piece.text), false, &piece);
    } else {
        own.text += piece.text;
    }
    if (!piece.over) return events;
    finish(choice, piece);
    if (stream_ && own.finish != nullptr && status_)
        events += chunk(dialect_->last(choice, own.finish), open_ == 0);
    return events;
}

std::string AnswerEvents::end() const {
    std::string events;
    if (include_usage_) {
        Json json = frame(dialect_->chunk_object);
        json["choices"] = Json::array();
        json["usage"] = report_.usage();
        json["paceline"] = report_.paceline();
        events = event(json);
    }
    return events + kStreamEnd;
}

std::string AnswerEvents::body() const {
    Json json = frame(dialect_->whole_object);
    json["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i)
        json["choices"].push_back(dialect_->whole(i, choices_[i].text, choices_[i].finish));
    json["usage"] = report_.usage();
    json["paceline"] = report_.paceline();
    return dumped(json);
}

std::string AnswerEvents::error_event(const ApiError& error) {
    return event(error_json(error));
}

}  // namespace paceline::serve
