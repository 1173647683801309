// The configuration of a model from its config.json, with the names of transformers 4 and 5.
//
// Keys that transformers ignores for a class are ignored; keys that would change the arithmetic and
// are no switch of ModelConfig (another activation, quantised weights, a rope kind) are refused by
// name.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/weights/huggingface/architecture.hpp"
#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline::huggingface {

struct FolderConfig {
    ModelConfig model;  // tied_embeddings: as the file says; tensors decide (folder_tensors.hpp)
    LongRope long_rope = {};
    const FolderArchitecture* architecture = nullptr;
    std::vector<std::string> remarks = {};  // what limits the context: sentences for people
};

/// Errors: Unsupported (by name), BadFile (missing key, wrong type, value out of range).
[[nodiscard]] Result<FolderConfig> read_config(JsonKeys& keys);

}  // namespace paceline::huggingface
