// Split GGUF models: PREFIX-00001-of-00003.gguf and its neighbours, opened from any of them.
//
// A shard has its number (from 0) in `split.no`, the number of shards in `split.count`, and in
// `split.tensors.count` the number of tensors of all. The first has all other keys, and perhaps no
// tensors. Checked: every shard exists, name and keys agree, all have the same
// counts, no two have a tensor of the same name, no tensor is missing. Pure functions except
// open_shards().
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {

inline constexpr int kGgufShardsMax = 512;  // each is a descriptor and a mapping

/// What the name of a shard says.
struct GgufShardName {
    std::string prefix;  // with its folder
    int number = 1;      // from 1
    int count = 1;

    [[nodiscard]] std::string path(int of_number) const;
};

/// Nothing: no name of a shard.
[[nodiscard]] std::optional<GgufShardName> parse_shard_name(const std::string& path);

/// One file of a model.
struct GgufBytes {
    std::span<const std::byte> bytes;
    std::string file;  // for messages
};

/// All files of the model that `opened` belongs to, in their order; `opened` alone if its name is
/// none of a shard. Errors: BadFile, naming the file that cannot be opened.
Result<std::vector<MappedFile>> open_shards(MappedFile opened);

/// The headers of all files, the first one's with all keys. Errors: BadFile, Unsupported, naming
/// the file that does not agree.
Result<std::vector<GgufHeader>> parse_shards(std::span<const GgufBytes> files);

/// The whole model; one file too. Neither opens files nor keeps anything: the views in the parts
/// point into the bytes. Errors: BadFile, Unsupported; see ModelFile::open().
Result<ModelParts> read_gguf_shards(std::span<const GgufBytes> files);

}  // namespace paceline
