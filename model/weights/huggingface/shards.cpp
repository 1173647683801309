#include "model/weights/huggingface/shards.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/json_file.hpp"
#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::size_t kShardsMax = 512;  // every one keeps a descriptor open
constexpr std::size_t kNameBytesMax = 255;

/// Whether it is the name of a file beside the index, and of no other.
bool is_plain_name(const std::string& name) {
    constexpr std::string_view kSuffix = ".safetensors";
    const bool plain =
        name.find('/') == name.npos && name.find('\0') == name.npos && name[0] != '.';
    return plain && name.size() <= kNameBytesMax && name.size() > kSuffix.size() &&
           name.ends_with(kSuffix);
}

Error no_weights(const std::string& folder) {
    constexpr std::array kOthers = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                    "consolidated.safetensors", "tf_model.h5",
                                    "flax_model.msgpack"};
    for (const char* other : kOthers) {
        if (!MappedFile::exists(folder + "/" + other)) continue;
        return {Errc::Unsupported, folder + ": weights in " + other + " are not supported; " +
                                       kSingle + " is, or shards with " + kIndex};
    }
    return {Errc::BadFile, folder + " has neither " + kSingle + " nor " + kIndex};
}

Status add_file(const std::string& path, Shards& shards) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    for (const StoredTensor& tensor : file.value().contents().tensors)
        shards.tensors.push_back({tensor, shards.files.size()});
    shards.data_starts.push_back(file.value().contents().data_start);
    shards.files.push_back(std::move(file).value().take_file());
    return {};
}

/// By name, every tensor of the files; an error names one that is in two.
Result<std::unordered_map<std::string_view, const ShardTensor*>> names_of(const Shards& shards) {
    std::unordered_map<std::string_view, const ShardTensor*> names;
    for (const ShardTensor& tensor : shards.tensors) {
        const auto [before, is_new] = names.emplace(tensor.tensor.name, &tensor);
        if (is_new) continue;
        return Error{Errc::BadFile, "tensor " + paceline::quoted_text(tensor.tensor.name) +
                                        " is in " + shards.files[before->second->shard].path() +
                                        " and in " + shards.files[tensor.shard].path()};
    }
    return names;
}

Status check_index(const ShardIndex& index, const Shards& shards, const std::string& file) {
    const auto names = names_of(shards);
    if (!names) return names.error();
    for (const auto& [name, shard] : index.tensors) {
        const auto found = names.value().find(name);
        if (found != names.value().end() && found->second->shard == shard) continue;
        return Error{Errc::BadFile, file + ": weight_map has tensor " +
                                        paceline::quoted_text(name) + " in " + index.files[shard] +
                                        ", where it is not"};
    }
    return {};
}

}  // namespace

Result<ShardIndex> read_shard_index(std::string_view text, const std::string& file) {
    const Result<nlohmann::json> root = parse_json_object(text, file);
    if (!root) return root.error();
    const auto map = root.value().find("weight_map");
    if (map == root.value().end() || !map->is_object() || map->empty()) {
        return Error{Errc::BadFile, file + ": weight_map is missing, empty or no object"};
    }
    ShardIndex index;
    std::unordered_map<std::string, std::size_t> places;
    for (const auto& [tensor, value] : map->items()) {
        if (!value.is_string() || !is_plain_name(value.get_ref<const std::string&>())) {
            return Error{Errc::BadFile, file + ": weight_map has tensor " +
                                            paceline::quoted_text(tensor) + " in " +
                                            json_text_of(value) +
                                            ", which names no safetensors file beside it"};
        }
        const auto [place, is_new] = places.emplace(value.get<std::string>(), index.files.size());
        if (is_new) index.files.push_back(place->first);
        index.tensors.emplace_back(tensor, place->second);
    }
    if (index.files.size() > kShardsMax) {
        return Error{Errc::BadFile,
                     fmt::format("{}: weight_map names {} files; at most {} are read", file,
                                 index.files.size(), kShardsMax)};
    }
    return index;
}

Result<Shards> open_shards(const std::string& folder) {
    Shards shards;
    // transformers takes the single file where both are there.
    if (const std::string single = folder + "/" + kSingle; MappedFile::exists(single)) {
        if (Status s = add_file(single, shards); !s) return s.error();
        return shards;
    }
    const std::string file = folder + "/" + kIndex;
    const Result<std::optional<std::string>> text = read_text_file(file, kLargeJsonBytesMax);
    if (!text) return text.error();
    if (!text.value()) return no_weights(folder);
    const Result<ShardIndex> index = read_shard_index(*text.value(), file);
    if (!index) return index.error();
    for (const std::string& name : index.value().files) {
        if (Status s = add_file(folder + "/" + name, shards); !s) return s.error();
    }
    if (Status s = check_index(index.value(), shards, file); !s) return s.error();
    return shards;
}

}  // namespace paceline::huggingface
