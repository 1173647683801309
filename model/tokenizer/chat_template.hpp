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

/// Immutable, any thread.
class ChatTemplate {
public:
    /// Recognises the Jinja text of a file, word for word but for the default system prompt and
    /// what is done only for tools: a template that is merely similar may render differently.
    /// Errors: Unsupported, quoting the template's start.
    static Result<ChatTemplate> recognise(std::string_view jinja);

    /// The system prompt that is put in front of a conversation without one; empty: none is.
    [[nodiscard]] const std::string& default_system() const { return default_system_; }

    /// Token ids of the conversation, ending with the opening of the assistant's turn.
    /// Contents are encoded as plain text: a user cannot smuggle in a control token.
    /// The tokenizer must know <|im_start|> and <|im_end|> as control tokens: see supported_by().
    [[nodiscard]] std::vector<TokenId> encode(const Tokenizer& tokenizer,
                                              std::span<const ChatMessage> messages) const;
    /// What follows an assistant's turn that ended with its end token, so that a conversation
    /// can go on in the KV cache: the ids between that end token and the next user's turn,
    /// the turn itself and the opening of the next answer.
    [[nodiscard]] std::vector<TokenId> encode_next_turn(const Tokenizer& tokenizer,
                                                        std::string_view user_content) const;

    /// Ok if `tokenizer` has the control tokens that the template writes. Errors: BadFile.
    [[nodiscard]] static Status supported_by(const Tokenizer& tokenizer);

private:
    explicit ChatTemplate(std::string default_system);

    std::string default_system_;
};

}  // namespace paceline
