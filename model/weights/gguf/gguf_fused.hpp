// Fused matrices of GGUF files: q, k and v in one, gate and up in one (architecture phi3).
//
// Taken apart by rows before tensors get their places: the parts have the names that other
// architectures have for them, and point into the same bytes. A row is a whole number of blocks, so
// that any type can be cut.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {

/// Replaces blk.N.attn_qkv.weight by attn_q, attn_k and attn_v, and an ffn_up.weight of twice the
/// rows by ffn_gate and ffn_up, in parts.tensors. Errors: BadFile: other rows than the
/// configuration demands.
Status split_fused(ModelParts& parts, const std::string& file);

/// The inverse, for writing: `tensors` with q, k, v and with gate, up of each layer as one matrix
/// each.
/// Errors: Unsupported: parts that do not lie behind each other in the file, by name.
[[nodiscard]] Result<std::vector<TensorView>> join_fused(const std::vector<TensorView>& tensors,
                                                         const std::string& file);

}  // namespace paceline
