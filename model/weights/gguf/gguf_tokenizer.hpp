// The tokenizer's data from the keys of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/chat_sources.hpp"
#include "model/weights/gguf/gguf_keys.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

inline constexpr std::size_t kTokenBytesMax = 65'536;  // of one vocabulary entry

/// Reads tokenizer.* and Paceline's own keys (gguf_model_keys.hpp). A file without a tokenizer (no
/// tokenizer.ggml.tokens) yields empty data: its weights can be run on token ids.
/// Where a file leaves out whether a text begins with a BOS, which ids are special, or whether a
/// text begins with a space, the family's rule holds, as in llama.cpp.
/// For a tokenizer.ggml.model other than gpt2, llama, and t5 as Paceline writes it
/// (gguf_piece_keys.hpp), the data contain the refusal: the model can be inspected and measured,
/// but text cannot be encoded. `vocab_size` is the number of rows of the embedding; tokens must be
/// exactly as many. What begins or ends a text or a turn is a control token, whatever its type says
/// (control_tokens.hpp); an id of a special token that is none of the vocabulary is ignored.
/// `remarks` say so.
/// Errors: BadFile (counts that disagree, kinds or needed ids out of range, wrong types).
Result<TokenizerData> read_tokenizer(GgufKeys& keys,
                                     int vocab_size,
                                     std::vector<std::string>& remarks);

/// The further chat templates: tokenizer.chat_template.NAME for each NAME of
/// tokenizer.chat_templates.
/// Errors: BadFile (wrong types, more than 64).
Result<ChatSources> read_chat_sources(GgufKeys& keys);

}  // namespace paceline
