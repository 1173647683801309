// ChatForms: what the chat template of a model says of the form of its answers.
//
// Plain values; any thread.
#pragma once

#include <vector>

#include "ipc/base/ids.hpp"
#include "launch/tool_calls/tool_format.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::serve {

struct ChatForms {
    ToolFormat tools = ToolFormat::Json;
    bool shows_tools = false;                  // to the model
    bool thoughts = false;                     // answers may begin with one
    bool text_by_control = false;              // the tags of a thought are control tokens
    std::vector<TokenId> shown_controls = {};  // they are part of an answer's text
};

[[nodiscard]] ChatForms chat_forms(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace paceline::serve
