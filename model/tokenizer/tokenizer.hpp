// Tokenizer: text to token ids and back: byte-level BPE, SentencePiece BPE, Unigram.
//
// Agrees with the Hugging Face tokenizers library on every input, invalid UTF-8 included (which
// is treated as U+FFFD per maximal invalid part, as Python's errors="replace" does).
// Immutable after make(): may be used from several threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

enum class SpecialTokens : std::uint8_t {
    Parse,  // "<|im_start|>" in the text is that token (templates, raw prompts)
    AsText  // it is the characters it consists of (what a user typed into a chat)
};

class Tokenizer {
public:
    /// Errors: Unsupported, naming tokenizer model or pre-tokenizer; BadFile for bad or missing
    /// merges, scores or kinds.
    static Result<Tokenizer> make(const TokenizerData& data);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;
    ~Tokenizer();

    /// Token ids of `text`. Adds no BOS or EOS.
    [[nodiscard]] std::vector<TokenId> encode(std::string_view text, SpecialTokens special) const;

    /// The same for a text that a template and a user wrote together: `user` has an entry per byte,
    /// 'u' where it is the user's. A control token is parsed only where no byte of it is; all else
    /// is encoded as one text, so that nothing changes where both meet. `after` is the token in
    /// front of a text that goes on with a conversation: SentencePiece puts a space in front of
    /// others.
    [[nodiscard]] std::vector<TokenId> encode_marked(
        std::string_view text,
        std::string_view origins,
        std::optional<TokenId> after = std::nullopt) const;

    /// Whether of an answer that follows `after` (none: that begins a text) the space in front is
    /// the tokenizer's own, which encoding would put there, and not the answer's.
    [[nodiscard]] bool hides_space_after(std::optional<TokenId> after) const;

    /// The raw bytes of one token (not always valid UTF-8). Control tokens yield their text.
    [[nodiscard]] std::string_view bytes_of(TokenId token) const;
    [[nodiscard]] bool is_control(TokenId token) const;
    [[nodiscard]] int vocab_size() const;
    [[nodiscard]] std::optional<TokenId> find(std::string_view token_text) const;

    /// Whether the file asks for a BOS in front of a raw prompt, and which.
    [[nodiscard]] std::optional<TokenId> prompt_bos() const;
    /// Tokens after which generation ends: eos, eot, eom and end tokens of the file, and control
    /// tokens with a name that ends a text or a turn (is_end_name()). Sorted, without repeats.
    [[nodiscard]] const std::vector<TokenId>& end_tokens() const;

private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Turns a stream of tokens into a stream of whole UTF-8 characters.
/// Holds back at most 3 bytes; control tokens yield nothing. One per answer; not thread-safe.
class Detokenizer {
public:
    /// `after` is the last token of the text that the stream goes on with.
    explicit Detokenizer(const Tokenizer& tokenizer, std::optional<TokenId> after = std::nullopt)
        : tokenizer_{&tokenizer}, hides_space_{tokenizer.hides_space_after(after)} {}

    /// Control tokens whose text is part of the stream; that of others is not.
    void show(std::vector<TokenId> controls) { shown_ = std::move(controls); }

    /// The text that became complete with `token`. Invalid bytes become U+FFFD.
    std::string push(TokenId token);
    /// What is left at the end: an unfinished character becomes U+FFFD.
    std::string finish();

private:
    const Tokenizer* tokenizer_;
    bool hides_space_;  // the first byte, if it is a space, is not part of the text
    std::string pending_;
    std::vector<TokenId> shown_;
};

}  // namespace paceline
