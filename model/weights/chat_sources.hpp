// ChatSources: what a format has of chat templates beside the default one, and where it keeps them.
//
// A plain value, filled by the formats' readers; model/tokenizer/chat_template.hpp makes it work.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace paceline {

struct ChatSources {
    std::string place = "tokenizer.chat_template";       // of the default template, for messages
    std::string tokens_place = "tokenizer.ggml.tokens";  // of the vocabulary, for messages
    std::vector<std::pair<std::string, std::string>> more = {};  // name and text: "tool_use", ...
};

}  // namespace paceline
