// The tensors of a folder: their types and shapes, and their part in the model.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/huggingface/folder_config.hpp"
#include "model/weights/huggingface/shards.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline::huggingface {

/// Gives every tensor its place in `parts`, under the name that a GGUF file has for it, and
/// completes parts.config with what tensors tell (tied_embeddings). Each is BF16, F16 or F32 and
/// has the shape that the configuration demands; vectors are finite; nothing is missing or left
/// over, but for tables of rope that old files carry. `folder` is the name for messages.
/// Errors: BadFile, Unsupported (a type, or a tensor that this model has no place for), by name.
[[nodiscard]] Status assign_tensors(const FolderConfig& config,
                                    const Shards& shards,
                                    const std::string& folder,
                                    ModelParts& parts);

}  // namespace paceline::huggingface
