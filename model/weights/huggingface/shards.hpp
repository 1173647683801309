// The safetensors files of a folder: one, or shards that an index names.
//
//     model.safetensors                    alone, or
//     model.safetensors.index.json         {"weight_map": {tensor: file, ...}}
//     model-00001-of-00002.safetensors ...
//
// The index names files of the same folder by plain names. Every tensor that it names is in its
// shard, and no tensor is in two. Owns the mappings that the tensors point into; moving it leaves
// them there.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/safetensors_file.hpp"

namespace paceline::huggingface {

struct ShardTensor {
    StoredTensor tensor;
    std::size_t shard = 0;  // which file, for messages
};

struct Shards {
    std::vector<MappedFile> files;
    std::vector<std::size_t> data_starts;  // of each file: bytes in front of its tensors' data
    std::vector<ShardTensor> tensors;      // of all files, in the order of their bytes
};

/// The files that an index names, in order and once each, and every tensor with its file. `text` is
/// the index, `file` its name for messages. Errors: BadFile.
struct ShardIndex {
    std::vector<std::string> files;
    std::vector<std::pair<std::string, std::size_t>> tensors;  // name, place in files
};
[[nodiscard]] Result<ShardIndex> read_shard_index(std::string_view text, const std::string& file);

/// Errors: BadFile: none of the two, or what is said above does not hold; Unsupported: the weights
/// are there in another format (pytorch_model.bin), by its name.
[[nodiscard]] Result<Shards> open_shards(const std::string& folder);

}  // namespace paceline::huggingface
