// The keys of a GGUF file out of a configuration and a tokenizer: what gguf_config.hpp and
// gguf_tokenizer.hpp read, written as llama.cpp's converter writes it, so that both programs run
// the file.
//
// Keys of Paceline's own say of a folder what GGUF has no key for; other programs ignore them:
//
//     paceline.tokenizer.end_token_ids    i32[]   tokens that end an answer too
//                                                 (generation_config.json)
//     paceline.tokenizer.strip_left       i32[]   added tokens that take the white space before
//                                                 them
//     paceline.tokenizer.strip_right      i32[]   those that take it after them
//     paceline.tokenizer.late_token_ids   i32[]   those that are searched once the text is
//                                                 normalised
//     paceline.tokenizer.whole_words      bool    a piece that is a token is taken whole
//                                                 (ignore_merges)
//     paceline.tokenizer.normal_form_c    bool    text is normalised first
//
// SentencePiece vocabularies have further ones (gguf_piece_keys.hpp). Rope factors are no key but
// tensors, which the caller writes: rope_freqs.weight of Llama 3, rope_factors_short.weight and
// rope_factors_long.weight of Phi-3. Pure.
#pragma once

#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/weights/chat_sources.hpp"
#include "model/weights/gguf/gguf_writer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

inline constexpr const char* kEndTokensKey = "paceline.tokenizer.end_token_ids";
inline constexpr const char* kStripLeftKey = "paceline.tokenizer.strip_left";
inline constexpr const char* kStripRightKey = "paceline.tokenizer.strip_right";
inline constexpr const char* kLateTokensKey = "paceline.tokenizer.late_token_ids";
inline constexpr const char* kWholeWordsKey = "paceline.tokenizer.whole_words";
inline constexpr const char* kNormalFormKey = "paceline.tokenizer.normal_form_c";

/// Whether GGUF calls the architecture "phi3": Llama's arithmetic without its order of q and k,
/// fused matrices.
[[nodiscard]] bool is_phi3(const ModelConfig& config);

/// general.architecture and the keys of the architecture, with `context` as its length.
void add_config_keys(const ModelConfig& config, int context, GgufKeyWriter& keys);

/// tokenizer.*. Errors: Unsupported: the tokenizer carries a refusal; those of add_piece_keys().
/// BadFile: a text too long for GGUF's limit (a chat template of more than 1 MiB).
[[nodiscard]] Status add_tokenizer_keys(const TokenizerData& tokenizer, GgufKeyWriter& keys);

/// tokenizer.chat_templates and what they name. Errors: BadFile: a text too long; a name
/// that is empty, too long or there twice.
[[nodiscard]] Status add_chat_templates(const ChatSources& chat, GgufKeyWriter& keys);

}  // namespace paceline
