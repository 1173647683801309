#include "model/tokenizer/chat_template.hpp"

#include <utility>

#include "ipc/base/check.hpp"
#include "model/tokenizer/chatml_pattern.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

/// Appends the parts of a ChatML text; one text at a time, as the template would render it.
class Writer {
public:
    explicit Writer(const Tokenizer& tokenizer) : tokenizer_{tokenizer} {
        PACE_CHECK(ChatTemplate::supported_by(tokenizer).ok(), "supported_by() was not asked");
    }

    void control(std::string_view text) { ids_.push_back(*tokenizer_.find(text)); }
    void plain(std::string_view text) {
        const std::vector<TokenId> ids = tokenizer_.encode(text, SpecialTokens::AsText);
        ids_.insert(ids_.end(), ids.begin(), ids.end());
    }
    /// Role and content are encoded in one go: BPE may merge across the line break.
    void message(std::string_view role, std::string_view content) {
        control(kStart);
        plain(std::string{role}.append("\n").append(content));
        control(kEnd);
        plain("\n");
    }
    void open_answer() {
        control(kStart);
        plain("assistant\n");
    }
    std::vector<TokenId> take() { return std::move(ids_); }

private:
    const Tokenizer& tokenizer_;
    std::vector<TokenId> ids_;
};

}  // namespace

ChatTemplate::ChatTemplate(std::string default_system)
    : default_system_{std::move(default_system)} {}

Result<ChatTemplate> ChatTemplate::recognise(std::string_view jinja) {
    if (jinja.empty()) {
        return Error{
            Errc::Unsupported,
            "the file has no chat template (tokenizer.chat_template); --raw works without"};
    }
    std::optional<ChatMl> chatml = match_chatml(jinja);
    if (!chatml) {
        return Error{
            Errc::Unsupported,
            "the file's chat template (tokenizer.chat_template) is not a known ChatML one; "
            "it begins " +
                quoted(jinja.substr(0, jinja.find('\n'))) + "; --raw works without"};
    }
    return ChatTemplate{std::move(chatml->default_system)};
}

Status ChatTemplate::supported_by(const Tokenizer& tokenizer) {
    for (const std::string_view text : {kStart, kEnd}) {
        const std::optional<TokenId> token = tokenizer.find(text);
        if (!token || !tokenizer.is_control(*token)) {
            return Error{Errc::BadFile, "the chat template needs " + std::string{text} +
                                            ", which is no control token of tokenizer.ggml.tokens"};
        }
    }
    return {};
}

std::vector<TokenId> ChatTemplate::encode(const Tokenizer& tokenizer,
                                          std::span<const ChatMessage> messages) const {
    Writer writer{tokenizer};
    const bool brings_system = !messages.empty() && messages[0].role == "system";
    if (!messages.empty() && !brings_system && !default_system_.empty()) {
        writer.message("system", default_system_);
    }
    for (const ChatMessage& message : messages) writer.message(message.role, message.content);
    writer.open_answer();
    return writer.take();
}

std::vector<TokenId> ChatTemplate::encode_next_turn(const Tokenizer& tokenizer,
                                                    std::string_view user_content) const {
    Writer writer{tokenizer};
    writer.plain("\n");  // the line break after the end token of the answer
    writer.message("user", user_content);
    writer.open_answer();
    return writer.take();
}

}  // namespace paceline
