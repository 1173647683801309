// The configuration of a model from the keys of its GGUF file.
//
// Architectures are rows of one table and switches of ModelConfig. Whatever would change the
// arithmetic and is not a switch of ModelConfig (experts, a narrow attention window, soft caps,
// a rope kind) is refused by name rather than ignored.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/weights/gguf/gguf_keys.hpp"

namespace paceline {

/// All of ModelConfig that keys tell. What only tensors tell is left to gguf_tensors.hpp:
/// vocab_size (here: the key's value or 0), qkv_bias of architectures where it is optional,
/// tied_embeddings, and RopeScaling::Factors.
/// `remarks` gets what the file limits (a window that cuts the context), or cannot say.
/// Errors: Unsupported (by name), BadFile (missing key, wrong type, value out of range).
Result<ModelConfig> read_config(GgufKeys& keys, std::vector<std::string>& remarks);

}  // namespace paceline
