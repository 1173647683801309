#include "launch/api/answer_events.hpp"

#include <string_view>
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

std::string data_of(const Json& json) {
    return "data: " + dumped(json) + "\n\n";
}

}  // namespace

AnswerEvents::AnswerEvents(const AnswerDialect& dialect,
                           ResponseHead head,
                           const PreparedAnswers& prepared)
    : dialect_{&dialect},
      head_{std::move(head)},
      format_{prepared.reply},
      echoed_{prepared.echoed},
      answers_{static_cast<std::size_t>(prepared.fields.n)},
      stream_{prepared.fields.stream},
      include_usage_{prepared.fields.include_usage},
      continuous_usage_{prepared.fields.continuous_usage},
      resumable_{prepared.fields.resume},
      spans_{prepared.fields.spans},
      report_{prepared.prompt_tokens, prepared.fields.n, prepared.seed, head_.method, head_.gamma},
      choices_(prepared.prompt_tokens.size() * static_cast<std::size_t>(prepared.fields.n),
               Choice{format_}),
      open_{choices_.size()} {
    for (Choice& each : choices_) {
        if (prepared.tokenizer != nullptr) each.scores = dialect_->scores(*prepared.tokenizer);
    }
}

const EchoedPrompt* AnswerEvents::echo_of(std::size_t choice) const {
    return echoed_.empty() ? nullptr : &echoed_[choice / answers_];
}

/// Those of a prompt that is echoed. One of a single token has none.
void AnswerEvents::add_prompt(std::size_t choice, const std::vector<TokenScores>& scores) {
    const EchoedPrompt* echo = echo_of(choice);
    ChoiceScores* own = choices_[choice].scores.get();
    if (echo == nullptr || own == nullptr) return;
    for (std::size_t i = 0; i < echo->ids.size(); ++i)
        own->add(echo->ids[i], i < scores.size() ? scores[i] : TokenScores{});
    if (begin_ > 0) (void)own->take();
}

/// What the client has already is read for the offsets behind it.
void AnswerEvents::add_scores(std::size_t choice, const AnswerPiece& piece) {
    ChoiceScores* own = choices_[choice].scores.get();
    if (own == nullptr) return;
    for (std::size_t i = 0; i < piece.ids.size() && i < piece.scores.size(); ++i) {
        own->add(piece.ids[i], piece.scores[i]);
        if (piece.begin + i + 1 <= begin_) (void)own->take();
    }
}

void AnswerEvents::begin_at(std::size_t id) {
    begin_ = id;
    for (Choice& each : choices_) each.reply.skip(id);
}

/// What a piece adds. Neighbouring parts of a call are one.
ReplyDelta AnswerEvents::read(std::size_t choice, const AnswerPiece& piece) {
    Choice& own = choices_[choice];
    ReplyDelta delta;
    const std::size_t thought_before = own.reply.thought_tokens();
    std::vector<ReplyCall>& calls = own.whole.calls;
    const auto open_call = [&]() -> CallDelta& {
        const std::size_t index = calls.size() - 1;
        if (delta.calls.empty() || delta.calls.back().index != index)
            delta.calls.push_back({.index = index});
        return delta.calls.back();
    };
    const ReplyEvents events = own.reply.add(piece);
    while (calls.size() < own.reply.skipped_calls()) calls.emplace_back();
    for (const ReplyEvent& event : events.all()) {
        switch (event.part) {
            case ReplyPart::Text:
                delta.text += event.text;
                break;
            case ReplyPart::Thought:
                delta.thought += event.text;
                break;
            case ReplyPart::CallBegin: {
                const std::string id =
                    call_id("call_", head_.id, choice, calls.size(), format_.tools);
                calls.push_back({.id = id, .name = event.text});
                open_call().id = id;
                delta.calls.back().name = event.text;
                break;
            }
            case ReplyPart::Arguments:
                open_call().arguments += event.text;
                break;
            case ReplyPart::CallEnd:
                break;
        }
    }
    report_.add_thought_tokens(own.reply.thought_tokens() - thought_before);
    return delta;
}

std::string AnswerEvents::event(const Json& json) const {
    return (resumable_ ? "id: " + std::to_string(id_) + "\n" : std::string{}) + data_of(json);
}

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
    if (very_last && !include_usage_) add_figures(json);
    return event(json);
}

void AnswerEvents::add_figures(Json& json) const {
    json["timings"] = report_.timings();
    json["metrics"] = report_.metrics();
    json["paceline"] = report_.paceline();
}

void AnswerEvents::finish(std::size_t choice, const AnswerPiece& piece) {
    --open_;
    report_.add(choice, piece.stats);
    Choice& own = choices_[choice];
    own.finish = finish_reason(piece.stats.finish);
    const bool ended = own.finish != nullptr && std::string_view{own.finish} == "stop";
    if (ended && !own.whole.calls.empty()) own.finish = "tool_calls";
    check_end(piece);
}

std::string AnswerEvents::add(std::size_t choice, const AnswerPiece& piece) {
    Choice& own = choices_[choice];
    const std::size_t tokens = piece.begin + piece.ids.size();
    const bool first = !std::exchange(own.begun, true);
    report_.add_tokens(first ? tokens : piece.ids.size());
    std::string events;
    ReplyDelta delta = read(choice, piece);
    const EchoedPrompt* echo = echo_of(choice);
    if (first && begin_ == 0 && echo != nullptr) delta.text = echo->text + delta.text;
    add_scores(choice, piece);
    if (stream_) {
        id_ = piece.begin;
        if (first && begin_ == 0 && dialect_->first != nullptr)
            events += chunk(dialect_->first(choice), false);
        id_ = piece.over ? tokens + 1 : tokens;
        // Text that belongs to no token has the id of the end.
        const bool scored = own.scores && !own.scores->empty();
        if ((scored || !delta.empty()) && begin_ <= tokens) {
            Json json = dialect_->delta(choice, delta);
            if (scored) json["logprobs"] = own.scores->take();
            events += chunk(std::move(json), false, &piece);
        }
    } else {
        own.whole.text += delta.text;
        own.whole.thought += delta.thought;
        for (const CallDelta& call : delta.calls)
            own.whole.calls[call.index].arguments += call.arguments;
    }
    if (!piece.over) return events;
    finish(choice, piece);
    if (stream_ && own.finish != nullptr && status())
        events += chunk(dialect_->last(choice, own.finish), open_ == 0);
    return events;
}

std::string AnswerEvents::end() {
    std::string events;
    if (include_usage_) {
        Json json = frame(dialect_->chunk_object);
        json["choices"] = Json::array();
        json["usage"] = report_.usage();
        add_figures(json);
        events = event(json);
    }
    return events + kStreamEnd;
}

std::string AnswerEvents::body() const {
    Json json = frame(dialect_->whole_object);
    json["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
        Json choice = dialect_->whole(i, choices_[i].whole, choices_[i].finish);
        if (choices_[i].scores) choice["logprobs"] = choices_[i].scores->take();
        json["choices"].push_back(std::move(choice));
    }
    json["usage"] = report_.usage();
    add_figures(json);
    return dumped(json);
}

}  // namespace paceline::serve
