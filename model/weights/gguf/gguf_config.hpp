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

/// The fields of ModelConfig that follow from keys. gguf_tensors.hpp fills in those that follow
/// from tensors: vocab_size (here: the key's value or 0), qkv_bias of architectures where it is
/// optional, tied_embeddings, and RopeScaling::Factors.
/// `remarks` gets limits of the file (a window that cuts the context), and configuration that it
/// does not state.
/// Errors: Unsupported (by name), BadFile (missing key, wrong type, value out of range).
Result<ModelConfig> read_config(GgufKeys& keys, std::vector<std::string>& remarks);

}  // namespace paceline
