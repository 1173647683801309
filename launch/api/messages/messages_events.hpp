// MessagesEvents: responses of POST /v1/messages.
//
//     message_start, ping
//     content_block_start, content_block_delta..., content_block_stop      of each block
//     message_delta (why it ended, usage), message_stop
//
// Blocks are thinking, text and tool_use. input_tokens are those that were not found in the cache:
// the first event, which leaves before that is known, counts all of them. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launch/api/tools/block_form.hpp"

namespace paceline::serve {

class MessagesEvents final : public BlockForm {
public:
    MessagesEvents(ResponseHead head, const PreparedAnswers& prepared);

    [[nodiscard]] std::string begin() override;
    [[nodiscard]] std::string end() override;
    [[nodiscard]] std::string body() const override;
    [[nodiscard]] std::string failure(const ApiError& error) override;

private:
    using Json = nlohmann::ordered_json;

    [[nodiscard]] std::string opened(std::size_t block) override;
    [[nodiscard]] std::string delta(std::size_t block, const std::string& text) override;
    [[nodiscard]] std::string closed(std::size_t block) override;
    [[nodiscard]] Json whole_block(std::size_t block) const;
    [[nodiscard]] Json usage() const;
    [[nodiscard]] Json message(bool over) const;
    [[nodiscard]] const char* stop_reason() const;
    [[nodiscard]] Json stop_sequence() const;

    std::vector<std::string> stops_;
};

}  // namespace paceline::serve
