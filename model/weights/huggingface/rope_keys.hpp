// The rope of a model from config.json: rope_theta and rope_scaling (transformers 4), or
// rope_parameters (transformers 5). The formulas are those of its modeling_rope_utils.py.
//
//     linear    frequencies / factor
//     dynamic   as without scaling up to max_position_embeddings, and no further here: beyond it the
//               base moves with the text, and keys that were computed would be wrong
//     yarn      see rope_table.hpp; attention_factor is absolute, else from mscale, mscale_all_dim
//     llama3    a divisor per frequency, as a GGUF file carries it
#pragma once

#include "model/config.hpp"
#include "model/weights/huggingface/json_keys.hpp"

namespace paceline::huggingface {

/// Completes config.rope, whose dims and pairing are set. What is wrong or unknown fails `keys`.
void read_rope(JsonKeys& keys, ModelConfig& config);

}  // namespace paceline::huggingface
