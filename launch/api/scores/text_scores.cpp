#include "launch/api/scores/text_scores.hpp"

#include <memory>

#include "launch/api/scores/scores_json.hpp"

namespace paceline::serve {

nlohmann::ordered_json TextScores::take(std::size_t bytes, std::size_t held) {
    std::size_t left = 0;
    for (const Pushed& one : pushed_) left += one.bytes;
    const std::unique_ptr<ChoiceScores> entries = chat_choice_scores(tokenizer_);
    const std::size_t end = bytes + held;  // of the text, counted from the end of what was pushed
    bool begun = false;
    auto at = pushed_.begin();
    for (; at != pushed_.end(); ++at) {
        if (at->bytes > 0 && left <= held) break;
        left -= at->bytes;
        // A token of a part of a character adds no byte: the one that completes it adds all.
        const bool part = at->bytes == 0 && left == end && !tokenizer_.is_control(at->token);
        begun = begun || left < end || part;
        if (begun) entries->add(at->token, at->scores);
    }
    pushed_.erase(pushed_.begin(), at);
    return std::move(entries->take()["content"]);
}

}  // namespace paceline::serve
