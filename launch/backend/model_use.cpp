#include "launch/backend/model_use.hpp"

#include "model/weights/synthetic_model.hpp"

namespace paceline {
namespace {

Error named(const ModelFile& file, const Error& error) {
    return {error.code, file.path() + ": " + error.what};
}

Result<ChatTemplate> read_template(const ModelFile& file, const Tokenizer& tokenizer) {
    Result<ChatTemplate> chat = ChatTemplate::recognise(file.tokenizer().chat_template);
    if (!chat) return chat;
    if (Status fits = ChatTemplate::supported_by(tokenizer); !fits) return fits.error();
    return chat;
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

Result<ChatTemplate> chat_template_of(const ModelFile& file, const Tokenizer& tokenizer) {
    Result<ChatTemplate> chat = read_template(file, tokenizer);
    if (!chat) return named(file, chat.error());
    return chat;
}

std::string use_text(const ModelFile& file) {
    if (is_synthetic(file)) return "cannot run: synthetic weights have no tokenizer";
    const Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
    if (!tokenizer) return "cannot run: " + tokenizer.error().what;
    const Result<ChatTemplate> chat = read_template(file, tokenizer.value());
    return chat ? "runs" : "runs with --raw only: " + chat.error().what;
}

}  // namespace paceline
