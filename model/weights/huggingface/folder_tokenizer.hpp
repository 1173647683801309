// The tokenizer of a folder: tokenizer.json, and which of its tokens begin and end a text.
//
// Byte-level BPE, SentencePiece BPE and Unigram become one. What else a tokenizer.json describes
// (other models, normalizers, pre-tokenizers, decoders) is no error of the file: the TokenizerData
// then carries the refusal, and the model can be inspected and measured, but not given text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::huggingface {

struct FolderTokenizer {
    TokenizerData data;
    bool has_post_processor = false;         // which then says what begins a text
    std::vector<TokenId> changed = {};       // that became control tokens by their names
    std::vector<std::string> left_out = {};  // added tokens whose ids are beyond the vocabulary
};

/// Tokens, kinds, merges and rules of `text`, a tokenizer.json; ids that it leaves free below
/// `vocab_size` become unused tokens, as GGUF files have them. `file` is the name for messages.
/// Tokens with a name that begins or ends a text or a turn are control tokens (control_tokens.hpp).
/// An added token without text, which the library ignores, or with an id beyond the vocabulary is
/// left out.
/// Errors: BadFile: an id of the model twice or beyond the vocabulary, a merge of tokens that are
/// not there, ...
[[nodiscard]] Result<FolderTokenizer> read_tokenizer(std::string_view text,
                                                     const std::string& file,
                                                     int vocab_size);

/// Adds what tokenizer_config.json says: the tokens that begin and end a text, and whether a text
/// begins with one. As in transformers 5, add_bos_token is not asked where there is a
/// post-processor, whether it is missing, false or true; where there is none, it counts as in the
/// conversion to GGUF. BOS and EOS become control tokens if they are none; unk_token says nothing
/// about SentencePiece vocabularies, whose model does.
void add_tokenizer_config(JsonKeys& keys, FolderTokenizer& tokenizer);

/// Adds the tokens of eos_token_id, an id or a list of ids, of generation_config.json or
/// config.json. They become control tokens if they are more than a character. An id beyond the
/// vocabulary, which no answer can have, is said in `remarks`.
void add_end_tokens(JsonKeys& keys,
                    int vocab_size,
                    TokenizerData& data,
                    std::vector<std::string>& remarks);

}  // namespace paceline::huggingface
