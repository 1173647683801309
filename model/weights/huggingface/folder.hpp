// A Hugging Face folder turned into a model, with every check done.
//
//     config.json               what the model is          folder_config, rope_keys, architecture
//     *.safetensors             its tensors                 shards, folder_tensors
//     tokenizer.json            its tokenizer               folder_tokenizer, token_pipeline
//     tokenizer_config.json     tokens that begin and end   folder_tokenizer
//     generation_config.json    more of them, sampling      generation_config
//     chat_template.jinja ...   its chat template           folder_template
//
// This is the one entry to the format. Only config.json and the tensors have to be there. Nothing
// is executed or fetched: code that a folder brings (auto_map) is not looked at.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::huggingface {

/// Errors: BadFile, Unsupported (by name), naming file, field and value.
[[nodiscard]] Result<ModelFile::Contents> read_folder(const std::string& path);

}  // namespace paceline::huggingface
