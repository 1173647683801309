// The tensors of a GGUF file: their types, their place in the file, their part in the model.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {

/// The number of a type in files.
[[nodiscard]] std::uint32_t ggml_number(StoredType type);

/// A view per tensor, in file order. Established for each: a stored type that can be read, rows
/// of whole blocks, bytes that lie inside the file and overlap no other tensor's.
/// Errors: Unsupported (a stored type, by its name), BadFile.
Result<std::vector<TensorView>> view_tensors(std::span<const std::byte> bytes,
                                             const GgufHeader& header,
                                             const std::string& file);

/// Gives every tensor of parts.tensors its place in the model, and completes parts.config with
/// what tensors tell (vocab_size, qkv_bias, tied_embeddings, rope factors). Shapes agree exactly
/// with the configuration, vectors are plain floats and finite, nothing is missing or left over.
/// Errors: BadFile, Unsupported (a tensor that this model has no place for, by its name).
Status assign_tensors(ModelParts& parts, const std::string& file);

}  // namespace paceline
