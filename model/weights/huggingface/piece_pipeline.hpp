// Normalizer, pre-tokenizer and decoder of a tokenizer.json without byte-level text: the rules by
// which a SentencePiece vocabulary treats text.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/weights/model_file.hpp"

namespace paceline::huggingface {

struct PiecePipeline {
    PieceRules rules;            // but for what the model states: byte_fallback, fuse_unknown
    bool decodes_bytes = false;  // "<0x0A>" is a byte
    std::string refusal;         // what of it is not known, by name; empty: all is
};

/// Of the whole document.
[[nodiscard]] PiecePipeline recognise_pieces(const nlohmann::json& tokenizer);

}  // namespace paceline::huggingface
