// NativeEvents: responses of POST /completion, llama.cpp's own API.
//
//     {"content": "...", "stop": true, "stop_type": "limit", "tokens_evaluated": 8,
//      "timings": {...}, ...}                 a list of them where the prompt was a list
//     data: {"content": "...", "tokens": [...], "stop": false}, ..., data: {..., "stop": true}
//
// `tokens` has the ids of the answer in a stream, and in a body if `return_tokens` asks for them.
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/answer_events.hpp"
#include "launch/api/answer_report.hpp"
#include "launch/api/response_form.hpp"

namespace paceline::serve {

class NativeEvents final : public ResponseForm {
public:
    NativeEvents(ResponseHead head, const PreparedAnswers& prepared);

    [[nodiscard]] std::string add(std::size_t choice, const AnswerPiece& piece) override;
    [[nodiscard]] std::string end() override { return {}; }
    [[nodiscard]] std::string body() const override;

private:
    struct Choice {
        AnswerReport report;
        std::int32_t prompt_tokens = 0;
        std::string text = {};
        std::vector<TokenId> ids = {};  // of a stream: those of no event yet
        std::size_t tokens = 0;
        bool new_line = false;
        FinishReason finish = FinishReason::None;
    };

    [[nodiscard]] nlohmann::ordered_json settings() const;
    [[nodiscard]] std::string stopping_word(FinishReason finish) const;
    [[nodiscard]] nlohmann::ordered_json part(std::size_t choice, const AnswerPiece& piece) const;
    [[nodiscard]] nlohmann::ordered_json whole(std::size_t choice) const;

    ResponseHead head_;
    GenerationFields fields_;
    SamplingParams sampling_;  // of the first answer
    bool list_;
    std::vector<Choice> choices_;
};

}  // namespace paceline::serve
