// SentencePiece vocabularies as keys of a GGUF file, written and read.
//
// GGUF's own keys are what other programs go by, and all that their files have:
//
//     tokenizer.ggml.model               str    "llama": BPE by scores; "t5": Unigram
//     tokenizer.ggml.scores              f32[]
//     tokenizer.ggml.add_space_prefix    bool
//
// A tokenizer.json says more: which pairs join in which order, what happens to a text first, where
// spaces are added, what becomes of unknown characters. Of a folder these keys of Paceline's own
// say it exactly; where they are, they count, and nothing is taken from the family's rules. Other
// programs ignore them:
//
//     paceline.tokenizer.piece_rules     str[]  words: merges or scores; metaspace, prefix-first,
//                                               prefix-always, cut-at-spaces, byte-fallback,
//                                               fuse-unknown, drops-space
//     paceline.tokenizer.text_steps      str[]  of each step three: its kind (nfc, nfkc, prepend,
//                                               replace), from, to
//     tokenizer.ggml.merges              str[]  with the word merges
//
// With merges, a token's score is minus the rank of the first merge that makes it: what BPE by
// scores makes of these is the same text of tokens in all but rare cases.
#pragma once

#include "ipc/base/result.hpp"
#include "model/weights/gguf/gguf_keys.hpp"
#include "model/weights/gguf/gguf_writer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Whether `model` is that of a SentencePiece vocabulary: "llama" or "unigram".
[[nodiscard]] bool has_pieces(const TokenizerData& data);

/// All keys but tokens, kinds, merges and ids. Precondition: has_pieces(). Errors: Unsupported: a
/// Unigram vocabulary whose scores have more digits than a float32.
[[nodiscard]] Status add_piece_keys(const TokenizerData& data, GgufKeyWriter& keys);

/// Completes `data`, which has tokens, kinds, merges and ids, where tokenizer.ggml.model is
/// "llama", or "t5" with keys of Paceline's own. A bad key becomes the status of `keys`.
void read_piece_keys(GgufKeys& keys, TokenizerData& data);

}  // namespace paceline
