// Prompt sets of `paceline check`, `simulate` and the benches: the built-in one, and files.
//
// A file has a JSON object per line. What is asked is the first of these that an object has:
// "prompt" (text), "turns" (its first text), "question", "text": so HumanEval, MT-bench, GSM8K and
// MBPP are read as they are. "id", "task_id" or "question_id" name it, else its line does.
// Plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct Prompt {
    std::string id;
    std::string text;
};

/// Sixteen short ones of different kinds: code, chat, lists, maths, text to copy from, other
/// alphabets, a single word.
[[nodiscard]] std::vector<Prompt> built_in_prompts();

/// Errors: BadFile with file and line; BadArgument for a file without prompts.
[[nodiscard]] Result<std::vector<Prompt>> read_prompts(const std::string& path);
/// The same from text; `name` is used in messages.
[[nodiscard]] Result<std::vector<Prompt>> parse_prompts(std::string_view text,
                                                        const std::string& name);

/// A prompt as the model reads it: through its chat template where it has one, else as it is.
/// Errors: those of ChatTemplate::make() and ChatTemplate::render().
[[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_prompts(
    const std::vector<Prompt>& prompts, const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace paceline
