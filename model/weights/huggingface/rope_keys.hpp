// The rope of a model from config.json: rope_theta and rope_scaling (transformers 4), or
// rope_parameters (transformers 5). The formulas are those of its modeling_rope_utils.py.
//
//     linear    frequencies / factor
//     dynamic   no scaling up to max_position_embeddings, where the context ends here: beyond it
//               the base changes with the length of the text, and cached keys would be wrong
//     yarn      see rope_table.hpp; attention_factor is absolute, else from mscale, mscale_all_dim
//     llama3    a divisor per frequency, as a GGUF file carries it
//     longrope  a divisor per frequency up to original_max_position_embeddings, the context without
//               -c; beyond it the other list's, which is the LongRope (model_parts.hpp)
#pragma once

#include <string>

#include "model/config.hpp"
#include "model/weights/huggingface/architecture.hpp"
#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline::huggingface {

/// Completes config.rope, whose pairing is set. What is wrong or unknown fails `keys`. Returns how
/// the scaling limits the context, a sentence for people; empty: it does not.
std::string read_rope(JsonKeys& keys,
                      const FolderArchitecture& architecture,
                      ModelConfig& config,
                      LongRope& long_rope);

/// What of the rope's keys stands one level deeper, in objects for types of layers, where neither
/// these architectures nor transformers' classes of them look: a sentence for people; empty:
/// nothing.
std::string unread_rope(JsonKeys& keys, const ModelConfig& config);

}  // namespace paceline::huggingface
