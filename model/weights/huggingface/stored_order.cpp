#include "model/weights/huggingface/stored_order.hpp"

#include <string>
#include <utility>
#include <vector>

#include "model/weights/huggingface/tensor_types.hpp"

namespace paceline::huggingface {
namespace {

/// The layer that "model.layers.N.SUFFIX" is of; nothing: another name.
std::string layer_of(const std::string& name, std::string_view suffix) {
    constexpr std::string_view kLayers = "model.layers.";
    const bool fits = name.starts_with(kLayers) && name.ends_with(suffix) &&
                      name.size() > kLayers.size() + suffix.size() + 1 &&
                      name[name.size() - suffix.size() - 1] == '.';
    return fits ? name.substr(0, name.size() - suffix.size()) : std::string{};
}

/// The parts of a fused matrix of `rule`; empty: it has not their rows.
std::vector<ShardTensor> split_parts(const ShardTensor& fused,
                                     const FusedRule& rule,
                                     const ModelConfig& config) {
    const StoredTensor& tensor = fused.tensor;
    const std::string layer = layer_of(tensor.name, rule.suffix);
    if (tensor.shape.size() != 2 || tensor.shape[0] <= 0) return {};
    const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
    std::vector<ShardTensor> parts;
    std::int64_t first = 0;
    for (const FusedPart& part : rule.parts) {
        if (part.suffix == nullptr) break;
        const std::int64_t rows = length_of(part.rows, config);
        if (first + rows > tensor.shape[0]) return {};
        parts.push_back(
            {.tensor = {.name = layer + part.suffix,
                        .type = tensor.type,
                        .shape = {rows, tensor.shape[1]},
                        .bytes = tensor.bytes.subspan(static_cast<std::size_t>(first) * row_bytes,
                                                      static_cast<std::size_t>(rows) * row_bytes)},
             .shard = fused.shard});
        first += rows;
    }
    return first == tensor.shape[0] ? parts : std::vector<ShardTensor>{};
}

Status split_fused(const FolderConfig& config, const std::string& folder, Shards& shards) {
    std::vector<ShardTensor> split;
    for (ShardTensor& tensor : shards.tensors) {
        std::vector<ShardTensor> parts;
        for (const FusedRule& rule : config.architecture->fused) {
            if (layer_of(tensor.tensor.name, rule.suffix).empty()) continue;
            parts = split_parts(tensor, rule, config.model);
            if (!parts.empty()) continue;
            return Error{Errc::BadFile, folder + ": tensor " + describe(tensor.tensor) +
                                            " does not have the rows that config.json demands"};
        }
        if (parts.empty()) parts.push_back(std::move(tensor));
        for (ShardTensor& part : parts) split.push_back(std::move(part));
    }
    shards.tensors = std::move(split);
    return {};
}

/// The numbers of a bias in the order of pairs; empty: it is not a bias of these heads.
std::vector<float> as_pairs(const StoredTensor& bias, std::int64_t count, int head_dim) {
    const std::optional<StoredType> type = stored_type(bias.type);
    if (!type || bias.shape != std::vector{count}) return {};
    const TensorView view{.name = bias.name,
                          .type = *type,
                          .rows = 1,
                          .cols = count,
                          .data = bias.bytes.data(),
                          .bytes = bias.bytes.size()};
    std::vector<float> stored(static_cast<std::size_t>(count));
    dequantize_row(view, 0, stored);
    TensorView rows;  // only its order
    rows.head_rows = head_dim;
    std::vector<float> pairs(stored.size());
    for (std::int64_t i = 0; i < count; ++i)
        pairs[static_cast<std::size_t>(i)] = stored[static_cast<std::size_t>(rows.stored_row(i))];
    return pairs;
}

Status order_biases(const FolderConfig& config, Shards& shards) {
    std::string bytes;
    std::vector<std::pair<StoredTensor*, std::size_t>> moved;  // and where it begins in `bytes`
    for (const TensorRule& rule : config.architecture->biases) {
        if (rule.order != RowOrder::PairsOfHeads) continue;
        for (ShardTensor& shard : shards.tensors) {
            if (layer_of(shard.tensor.name, rule.suffix).empty()) continue;
            const std::vector<float> pairs =
                as_pairs(shard.tensor, length_of(rule.cols, config.model), config.model.head_dim);
            if (pairs.empty()) continue;
            moved.emplace_back(&shard.tensor, bytes.size());
            bytes.append(reinterpret_cast<const char*>(pairs.data()), pairs.size() * sizeof(float));
        }
    }
    if (moved.empty()) return {};
    Result<MappedFile> file = MappedFile::of_text("biases in the order of pairs", bytes);
    if (!file) return file.error();
    for (const auto& [tensor, begin] : moved) {
        tensor->type = SafetensorsType::F32;
        tensor->bytes = file.value().bytes().subspan(
            begin, static_cast<std::size_t>(tensor->shape[0]) * sizeof(float));
    }
    shards.files.push_back(std::move(file).value());
    return {};
}

}  // namespace

Status put_in_order(const FolderConfig& config, const std::string& folder, Shards& shards) {
    if (Status s = split_fused(config, folder, shards); !s) return s;
    return config.model.qkv_bias ? order_biases(config, shards) : Status{};
}

}  // namespace paceline::huggingface
