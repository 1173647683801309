// ChatTemplate: a conversation as the text and the token ids that a model was trained on.
//
// The file's own template is rendered (model/templates); with tools the one named "tool_use", if
// there is one. The contents of messages are text of the user: control tokens are encoded only from
// text that the template itself wrote.
// Immutable, any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/templates/template.hpp"
#include "model/tokenizer/chat_messages.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/chat_sources.hpp"

namespace paceline {

struct ChatMessage {
    std::string role;  // "system", "user", "assistant"
    std::string content;
};

/// Now, for templates that ask for the date.
[[nodiscard]] jinja::LocalTime local_time();

class ChatTemplate {
public:
    /// Errors: Unsupported: the file has none, or it uses what the engine does not have (with the
    /// line). Nothing is rendered: whether the template refuses a conversation depends on that
    /// conversation. One for tools that cannot be used is refused when it is asked for.
    static Result<ChatTemplate> make(const TokenizerData& data, const ChatSources& sources = {});

    /// The conversation, ending with the opening of the assistant's turn. `tools`: a list of them
    /// in JSON, or empty.
    /// Errors: Unsupported with the line: the template refuses it ("System role not supported"), or
    /// a limit; BadArgument: the tools are no list; BadFile: the template writes a control token
    /// that the vocabulary has as an ordinary one.
    [[nodiscard]] Result<jinja::Text> render(std::span<const ChatMessage> messages,
                                             const jinja::LocalTime& now,
                                             std::string_view tools = {}) const;
    /// A conversation in the JSON of chat APIs (chat_messages.hpp). `arguments`: a JSON object of
    /// further variables of the template, or empty. `cut`: of the arguments of tool calls.
    /// Errors: also BadArgument: no JSON, or not of that form.
    [[nodiscard]] Result<jinja::Text> render_json(std::string_view messages,
                                                  std::string_view tools,
                                                  const jinja::LocalTime& now,
                                                  std::string_view arguments = {},
                                                  CutArguments cut = CutArguments::Refuse) const;
    /// Its token ids.
    [[nodiscard]] Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer,
                                                      std::span<const ChatMessage> messages,
                                                      const jinja::LocalTime& now) const;

private:
    ChatTemplate(jinja::Template parsed, const TokenizerData& data, const ChatSources& sources);
    [[nodiscard]] Status check_control_tokens(const jinja::Text& text) const;
    void add_specials(jinja::Variables& variables) const;
    [[nodiscard]] Result<jinja::Text> render_with(jinja::Variables& variables,
                                                  std::string_view tools,
                                                  const jinja::LocalTime& now) const;

    jinja::Template template_;
    std::optional<Result<jinja::Template>> for_tools_;          // nothing: the same for all
    std::vector<std::pair<std::string, std::string>> special_;  // "bos_token" and its text
    std::vector<std::string> ordinary_;  // tokens of the form <|word|> that are no control tokens
    std::string tokens_place_;           // where the vocabulary is, for messages
};

/// The ids of a rendered text, or of the part of one that follows the token `after`.
[[nodiscard]] std::vector<TokenId> encode(const Tokenizer& tokenizer,
                                          const jinja::Text& text,
                                          std::optional<TokenId> after = std::nullopt);

}  // namespace paceline
