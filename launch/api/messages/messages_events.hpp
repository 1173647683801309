// MessagesEvents: responses of POST /v1/messages.
//
//     message_start, ping
//     content_block_start, content_block_delta..., content_block_stop      of each block
//     message_delta (why it ended, usage), message_stop
//
// Blocks are thinking, text and tool_use. input_tokens are those that were not found in the cache:
// the first event, which leaves before that is known, counts all of them. One thread.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launch/api/answer_events.hpp"
#include "launch/api/answer_report.hpp"
#include "launch/api/response_form.hpp"
#include "launch/api/tools/reply_blocks.hpp"
#include "launch/api/tools/reply_tracker.hpp"

namespace paceline::serve {

class MessagesEvents final : public ResponseForm {
public:
    MessagesEvents(ResponseHead head, const PreparedAnswers& prepared);

    [[nodiscard]] std::string begin() override;
    [[nodiscard]] std::string add(std::size_t choice, const AnswerPiece& piece) override;
    [[nodiscard]] std::string end() override;
    [[nodiscard]] std::string body() const override;
    [[nodiscard]] std::string failure(const ApiError& error) override;

private:
    using Json = nlohmann::ordered_json;

    [[nodiscard]] std::string events_of(const std::vector<BlockStep>& steps) const;
    [[nodiscard]] Json opened(std::size_t block) const;
    [[nodiscard]] Json delta(std::size_t block, const std::string& text) const;
    [[nodiscard]] Json whole_block(std::size_t block) const;
    [[nodiscard]] Json usage() const;
    [[nodiscard]] Json message(bool over) const;
    [[nodiscard]] const char* stop_reason() const;
    [[nodiscard]] Json stop_sequence() const;

    ResponseHead head_;
    ReplyFormat format_;
    std::vector<std::string> stops_;
    bool stream_;
    ReplyTracker reply_;
    ReplyBlocks blocks_;
    AnswerReport report_;
    FinishReason finish_ = FinishReason::None;
};

}  // namespace paceline::serve
