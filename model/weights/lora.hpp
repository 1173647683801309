// Merging a LoRA into a target: a trained part of the kind "lora" (docs/trained-parts.md) changes
// the weights of the file that it was trained for, W' = W + scale * B A for each matrix that it
// names.
//
// No merged copy is made: a TensorView of the result has its low-rank update beside the file's
// bytes, and dequantize_row() adds it row by row while a backend packs. Matrices that the part does
// not name are packed as ever. The factors are float32 in memory as long as the ModelFile lives.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// `target` with the LoRA at `path` merged: a target of its own, with another fingerprint.
/// Errors: those of open_part(); BadArgument for a target that is a shape without weights or has a
/// LoRA already; BadFile naming file, tensor or key, and value: shapes, ranks, types, numbers that
/// are not finite, a product that may leave the range of float16.
[[nodiscard]] Result<ModelFile> merge_lora(ModelFile target, const std::string& path);

}  // namespace paceline
