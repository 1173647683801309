#include "launch/api/native_events.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string json_line(const Json& object) {
    return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const char* stop_type(FinishReason finish) {
    switch (finish) {
        case FinishReason::EndToken:
            return "eos";
        case FinishReason::StopString:
            return "word";
        case FinishReason::MaxTokens:
        case FinishReason::ContextFull:
            return "limit";
        default:
            return "none";
    }
}

/// "a/b" is the value at that place; nullptr: there is none.
const Json* value_at(const Json& object, const std::string& place) {
    const Json* at = &object;
    for (std::size_t begin = 0; begin <= place.size();) {
        const std::size_t end = std::min(place.find('/', begin), place.size());
        const auto found = at->is_object() ? at->find(place.substr(begin, end - begin)) : at->end();
        if (found == at->end()) return nullptr;
        at = &*found;
        begin = end + 1;
    }
    return at;
}

}  // namespace

NativeEvents::NativeEvents(ResponseHead head, const PreparedAnswers& prepared)
    : head_{std::move(head)},
      fields_{prepared.fields},
      sampling_{prepared.sampling},
      list_{prepared.prompt_is_list} {
    for (const std::int32_t tokens : prepared.prompt_tokens) {
        for (int i = 0; i < fields_.n; ++i)
            choices_.push_back(
                {.report = AnswerReport{{tokens}, 1, prepared.seed, head_.method, head_.gamma},
                 .prompt_tokens = tokens});
    }
}

Json NativeEvents::settings() const {
    const std::int64_t most = fields_.max_tokens ? *fields_.max_tokens : -1;
    return {{"seed", sampling_.seed},
            {"temperature", sampling_.temperature},
            {"top_k", sampling_.top_k},
            {"top_p", sampling_.top_p},
            {"min_p", sampling_.min_p},
            {"repeat_penalty", sampling_.repetition_penalty},
            {"repeat_last_n", sampling_.penalty_window},
            {"presence_penalty", sampling_.presence_penalty},
            {"frequency_penalty", sampling_.frequency_penalty},
            {"n_predict", most},
            {"max_tokens", most},
            {"ignore_eos", fields_.ignore_eos},
            {"stop", fields_.stop},
            {"stream", fields_.stream}};
}

/// Which of several it was is not known here.
std::string NativeEvents::stopping_word(FinishReason finish) const {
    const bool known = finish == FinishReason::StopString && fields_.stop.size() == 1;
    return known ? fields_.stop.front() : std::string{};
}

Json NativeEvents::part(std::size_t choice, const AnswerPiece& piece) const {
    const Choice& own = choices_[choice];
    Json object{{"index", choice},
                {"content", piece.text},
                {"tokens", own.ids},
                {"stop", false},
                {"id_slot", -1},
                {"tokens_predicted", own.tokens},
                {"tokens_evaluated", own.prompt_tokens}};
    return object;
}

Json NativeEvents::whole(std::size_t choice) const {
    const Choice& own = choices_[choice];
    Json object{{"index", choice},
                {"content", own.text},
                {"tokens", own.ids},
                {"id_slot", -1},
                {"stop", true},
                {"model", head_.model},
                {"tokens_predicted", own.tokens},
                {"tokens_evaluated", own.prompt_tokens},
                {"generation_settings", settings()},
                {"has_new_line", own.new_line},
                {"truncated", false},
                {"stop_type", stop_type(own.finish)},
                {"stopping_word", stopping_word(own.finish)},
                {"tokens_cached", own.report.cached_tokens()},
                {"timings", own.report.timings()},
                {"metrics", own.report.metrics()},
                {"paceline", own.report.paceline()}};
    if (fields_.response_fields.empty()) return object;
    Json chosen = Json::object();
    for (const std::string& place : fields_.response_fields) {
        if (const Json* value = value_at(object, place)) chosen[place] = *value;
    }
    return chosen;
}

std::string NativeEvents::add(std::size_t choice, const AnswerPiece& piece) {
    Choice& own = choices_[choice];
    own.tokens += piece.ids.size();
    own.report.add_tokens(piece.ids.size());
    own.new_line = own.new_line || piece.text.find('\n') != std::string::npos;
    std::string events;
    if (fields_.stream) {
        own.ids.insert(own.ids.end(), piece.ids.begin(), piece.ids.end());
        if (!piece.text.empty()) {
            events = "data: " + json_line(part(choice, piece)) + "\n\n";
            own.ids.clear();
        }
    } else {
        own.text += piece.text;
        if (fields_.return_tokens)
            own.ids.insert(own.ids.end(), piece.ids.begin(), piece.ids.end());
    }
    if (!piece.over) return events;
    own.report.add(0, piece.stats);
    own.finish = piece.stats.finish;
    check_end(piece);
    if (fields_.stream && status()) events += "data: " + json_line(whole(choice)) + "\n\n";
    return events;
}

std::string NativeEvents::body() const {
    if (!list_) return json_line(whole(0));
    Json all = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) all.push_back(whole(i));
    return json_line(all);
}

}  // namespace paceline::serve
