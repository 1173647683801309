// Prompt sets of `paceline check`, `simulate` and the benches: the built-in one, and files.
//
// A file has a JSON object per line. What is asked is the first of these that an object has:
// "prompt" (text), "messages" (a conversation), "turns" (its first text), "question", "text": so
// HumanEval, MT-bench, GSM8K, MBPP and chat data are read as they are. A conversation is a list of
// objects with "role" and "content", under any of the keys; "tools" may stand beside it. What the
// assistant says at its end is left out: it is the answer. "id", "task_id" or "question_id" name
// the prompt, else its line does. Plain values.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct Prompt {
    std::string id;
    std::string text = {};      // a message of a user, or
    std::string messages = {};  // a conversation: JSON of chat APIs (chat_messages.hpp)
    std::string tools = {};     // and its tools, JSON; empty: none
};

/// Sixteen short ones of different kinds: code, chat, lists, maths, text to copy from, other
/// alphabets, a single word.
[[nodiscard]] std::vector<Prompt> built_in_prompts();

/// Errors: BadFile with file and line; BadArgument for a file without prompts.
[[nodiscard]] Result<std::vector<Prompt>> read_prompts(const std::string& path);
/// The same from text; `name` is used in messages.
[[nodiscard]] Result<std::vector<Prompt>> parse_prompts(std::string_view text,
                                                        const std::string& name);

/// The prompts of `path`, or the built-in ones if it is empty; at most `most`, 0: all. Errors:
/// those of read_prompts().
[[nodiscard]] Result<std::vector<Prompt>> chosen_prompts(const std::string& path, int most);

/// What --first and -n may be.
struct PromptSetRanges {
    int first_min = 0;  // 0 takes all prompts
    int first_max = std::numeric_limits<int>::max();
    int tokens_min = 1;
    int tokens_max = std::numeric_limits<int>::max();
};

/// --prompts, --first and -n of a command that decodes a prompt set.
void add_prompt_set_options(
    Command& command, std::string& file, int& first, int& tokens, PromptSetRanges ranges = {});

/// A prompt as the model reads it: through its chat template where it has one, else as it is.
/// Errors: those of ChatTemplate::make() and ChatTemplate::render_json(); a conversation without a
/// chat template, tools without a place in it.
[[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_prompts(
    const std::vector<Prompt>& prompts, const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace paceline
