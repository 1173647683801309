#include "launch/api/scores/text_scores.hpp"

#include <memory>

#include "launch/api/scores/scores_json.hpp"

namespace paceline::serve {

nlohmann::ordered_json TextScores::take(std::size_t bytes) {
    std::size_t left = 0;
    for (const auto& [token, scores] : pushed_) left += tokenizer_.bytes_of(token).size();
    const std::unique_ptr<ChoiceScores> entries = chat_choice_scores(tokenizer_);
    bool begun = false;
    for (const auto& [token, scores] : pushed_) {
        left -= tokenizer_.bytes_of(token).size();
        begun = begun || left < bytes;
        if (begun) entries->add(token, scores);
    }
    pushed_.clear();
    return std::move(entries->take()["content"]);
}

}  // namespace paceline::serve
