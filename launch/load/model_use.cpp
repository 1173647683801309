#include "launch/load/model_use.hpp"

#include <algorithm>
#include <array>

#include "model/weights/model_parts.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"

namespace paceline {
namespace {

Error named(const ModelFile& file, const Error& error) {
    return {error.code, file.path() + ": " + error.what};
}

}  // namespace

Result<Tokenizer> tokenizer_of(const ModelFile& file) {
    Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
    if (tokenizer) return tokenizer;
    const bool damaged = tokenizer.error().code == Errc::BadFile;
    Error error = named(file, tokenizer.error());
    if (damaged) error.what += "; fetch the file again, or convert it anew";
    return error;
}

Result<ChatTemplate> chat_template_of(const ModelFile& file) {
    Result<ChatTemplate> chat = ChatTemplate::make(file.tokenizer(), file.contents().parts.chat);
    if (!chat) return named(file, chat.error());
    return chat;
}

Status check_place_for_tools(const ModelFile& file) {
    const bool named = file.tokenizer().chat_template.find("tools") != std::string::npos;
    const auto& more = file.contents().parts.chat.more;
    const bool own = std::any_of(more.begin(), more.end(),
                                 [](const auto& entry) { return entry.first == "tool_use"; });
    if (named || own) return {};
    return Error{Errc::Unsupported,
                 "the chat template of " + file.path() + " has no place for tools"};
}

std::string use_text(const ModelFile& file) {
    if (is_synthetic(file)) return "cannot run: synthetic weights have no tokenizer";
    const Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
    if (!tokenizer) return "cannot run: " + tokenizer.error().what;
    const Result<ChatTemplate> chat =
        ChatTemplate::make(file.tokenizer(), file.contents().parts.chat);
    if (!chat) return "runs with --raw only: " + chat.error().what;
    // Only an example: another conversation, one with a system prompt say, may pass.
    const Result<jinja::Text> text =
        chat.value().render(std::array{ChatMessage{"user", "Hello"}}, local_time());
    return text ? "runs" : "runs; may refuse: " + text.error().what;
}

}  // namespace paceline
