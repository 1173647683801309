#include "launch/load/model_use.hpp"

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

std::string use_text(const ModelFile& file) {
    if (is_synthetic(file)) return "cannot run: synthetic weights have no tokenizer";
    const Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
    if (!tokenizer) return "cannot run: " + tokenizer.error().what;
    const Result<ChatTemplate> chat =
        ChatTemplate::make(file.tokenizer(), file.contents().parts.chat);
    return chat ? "runs" : "runs with --raw only: " + chat.error().what;
}

}  // namespace paceline
