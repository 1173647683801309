// What must be rearranged before tensors get their places: fused matrices, and biases of heads.
//
// Both change the list of a folder's tensors, not its bytes: fused rows become tensors of their own
// that point into the same file; biases of q and k whose rows are read as neighbouring pairs
// (RowOrder::PairsOfHeads) are written in that order to a file in memory, which is added to
// shards.files.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/huggingface/folder_config.hpp"
#include "model/weights/huggingface/shards.hpp"

namespace paceline::huggingface {

/// `folder` is the name for messages. A bias whose type or shape is not the expected one stays as
/// it is: assign_tensors() then names it. Errors: BadFile: a fused matrix with other rows; System:
/// no memory.
[[nodiscard]] Status put_in_order(const FolderConfig& config,
                                  const std::string& folder,
                                  Shards& shards);

}  // namespace paceline::huggingface
