// Which of the known tokenizers a tokenizer.json describes: its normalizer, pre-tokenizer and
// post-processor, recognised word for word.
//
// A part that is not recognised exactly is refused by name: one different character of a regular
// expression gives other tokens.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/ids.hpp"
#include "model/weights/huggingface/piece_pipeline.hpp"

namespace paceline::huggingface {

struct TokenPipeline {
    bool byte_level = false;  // else `pieces` has the rules
    std::string pre;          // as GGUF names it: "llama-bpe"; tokenizer/pre_tokenizer.hpp
    bool normal_form_c = false;
    PiecePipeline pieces;
    std::vector<TokenId> prefix;  // what the post-processor puts in front of a text
    bool suffix = false;          // and whether it puts something behind
    bool has_post_processor = false;
    std::string refusal;  // why this is none of them; empty: it is one
};

/// Of the whole document. What is wrong or unknown is the refusal.
[[nodiscard]] TokenPipeline recognise_pipeline(const nlohmann::json& tokenizer);

}  // namespace paceline::huggingface
