// The chat templates of a folder, in whichever of their places they are.
//
//     chat_template.jinja                            the default one; with
//     additional_chat_templates/NAME.jinja           further ones: these two win
//     tokenizer_config.json: chat_template           the text, or a list of {name, template}
//     chat_template.json: chat_template              the text; what processors are saved with
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/chat_sources.hpp"
#include "model/weights/huggingface/json_keys.hpp"

namespace paceline::huggingface {

struct FolderTemplates {
    std::string text;     // of a list the template named "default", else the first one; empty: none
    ChatSources sources;  // all others, by name
};

/// `tokenizer_config`: of the same folder. Errors: BadFile.
[[nodiscard]] Result<FolderTemplates> read_chat_templates(const std::string& folder,
                                                          JsonKeys& tokenizer_config);

}  // namespace paceline::huggingface
