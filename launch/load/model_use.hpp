// What a model file can be used for: whether its text can be encoded, and by which chat template.
//
// Pure functions of a file that ModelFile::open() has checked.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/tokenizer/chat_template.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// The tokenizer of `file`. Errors: those of Tokenizer::make(), naming the file.
[[nodiscard]] Result<Tokenizer> tokenizer_of(const ModelFile& file);

/// Its chat template. Errors: those of ChatTemplate::make(); they name the file, and --raw as the
/// remedy.
[[nodiscard]] Result<ChatTemplate> chat_template_of(const ModelFile& file);

/// Errors: Unsupported: its chat template never names tools, and would leave them out without a
/// word.
[[nodiscard]] Status check_place_for_tools(const ModelFile& file);

/// "runs", "runs; may refuse: why" (the chat template refuses a message of a user alone), "runs
/// with --raw only: why" or "cannot run: why".
[[nodiscard]] std::string use_text(const ModelFile& file);

}  // namespace paceline
