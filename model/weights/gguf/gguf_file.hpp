// A whole GGUF file turned into the parts of a model, with every check done.
//
// The entry point for a single file: bytes in, ModelParts or an error out. It neither opens
// files nor keeps anything; the views in the parts point into `bytes`. Several files:
// gguf_shards.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {

/// `file` is the name for messages. Errors: BadFile, Unsupported; see ModelFile::open().
Result<ModelParts> read_gguf(std::span<const std::byte> bytes, const std::string& file);

}  // namespace paceline
