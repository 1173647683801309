// Chat templates that Paceline knows by the text of the file's own template.
//
// ChatML ("<|im_start|>role\n...<|im_end|>\n") and its kin, with the default system prompt that
// the file's template states. Any other template is refused by name: --raw always works.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

struct ChatMessage {
    std::string role;  // "system", "user", "assistant"
    std::string content;
};

class ChatTemplate {
public:
    /// Recognises the Jinja text of a file. Errors: Unsupported, quoting the template's start.
    static Result<ChatTemplate> recognise(std::string_view jinja);

    /// Token ids of the conversation, ending with the opening of the assistant's turn.
    /// Contents are encoded as plain text: a user cannot smuggle in a control token.
    [[nodiscard]] std::vector<TokenId> encode(const Tokenizer& tokenizer,
                                              std::span<const ChatMessage> messages) const;
    /// What follows an assistant's turn that ended with its end token, so that a conversation
    /// can go on in the KV cache: the ids between that end token and the next user's turn,
    /// the turn itself and the opening of the next answer.
    [[nodiscard]] std::vector<TokenId> encode_next_turn(const Tokenizer& tokenizer,
                                                        std::string_view user_content) const;

private:
    std::string default_system_;  // empty: none is added
};

}  // namespace paceline
