// The chat template of a folder, in whichever of its places it is.
//
//     chat_template.jinja                            the text; wins
//     tokenizer_config.json: chat_template           the text, or a list of {name, template}
//     chat_template.json: chat_template              the text; what processors are saved with
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/huggingface/json_keys.hpp"

namespace paceline::huggingface {

/// `tokenizer_config`: of the same folder; of a list the template named "default", else the first one.
/// Empty: there is none. Errors: BadFile.
[[nodiscard]] Result<std::string> read_chat_template(const std::string& folder,
                                                     JsonKeys& tokenizer_config);

}  // namespace paceline::huggingface
