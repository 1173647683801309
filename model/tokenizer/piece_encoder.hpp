// SentencePiece: spaces become U+2581, a text may begin with one, and what is between cuts is
// encoded by BPE of characters or by Unigram.
#pragma once

#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "model/tokenizer/text_encoder.hpp"
#include "model/tokenizer/vocabulary.hpp"

namespace paceline {

inline constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581

/// For the model "llama" or "unigram". `vocabulary` must outlive what is returned.
/// Errors: BadFile: those of CharacterBpe::make() and Unigram::make().
[[nodiscard]] Result<std::unique_ptr<TextEncoder>> make_piece_encoder(const TokenizerData& data,
                                                                      const Vocabulary& vocabulary);

/// What a token of such a vocabulary stands for.
[[nodiscard]] std::string piece_bytes(const Vocabulary& vocabulary, TokenId token);

}  // namespace paceline
