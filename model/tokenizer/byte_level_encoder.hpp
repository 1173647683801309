// Byte-level BPE: a text is cut by its family's pre-tokenizer, and the bytes of each piece are
// merged.
#pragma once

#include <memory>

#include "ipc/base/result.hpp"
#include "model/tokenizer/pre_tokenizer.hpp"
#include "model/tokenizer/text_encoder.hpp"
#include "model/tokenizer/vocabulary.hpp"

namespace paceline {

/// `vocabulary` must outlive what is returned.
/// Errors: BadFile: merges that are missing, malformed, or lead out of the vocabulary.
[[nodiscard]] Result<std::unique_ptr<TextEncoder>> make_byte_level_encoder(
    const TokenizerData& data, PreTokenizer pre, const Vocabulary& vocabulary);

/// What a token of such a vocabulary stands for.
[[nodiscard]] std::string byte_level_bytes(const Vocabulary& vocabulary, TokenId token);

}  // namespace paceline
