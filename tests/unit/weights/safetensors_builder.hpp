// Safetensors files for tests, made in memory: valid ones, parts of a target, and any header.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/weights/fingerprint.hpp"
#include "model/weights/model_file.hpp"
#include "tests/support/test_folder.hpp"

namespace paceline::test {

/// A file of this header and these bytes of data, whatever they are.
inline std::vector<std::byte> safetensors_bytes(const std::string& header,
                                                std::span<const std::byte> data) {
    const std::uint64_t length = header.size();
    std::vector<std::byte> out(sizeof length + header.size() + data.size());
    std::memcpy(out.data(), &length, sizeof length);
    std::memcpy(out.data() + sizeof length, header.data(), header.size());
    std::copy(data.begin(), data.end(),
              out.begin() + static_cast<std::ptrdiff_t>(sizeof length + header.size()));
    return out;
}

/// Adds tensors one after the other.
class SafetensorsBuilder {
public:
    std::map<std::string, std::string> metadata;

    void add(const std::string& name,
             const std::string& dtype,
             const std::vector<std::int64_t>& shape,
             std::span<const std::byte> bytes) {
        std::string sizes;
        for (const std::int64_t size : shape)
            sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
        const std::size_t begin = data_.size();
        data_.insert(data_.end(), bytes.begin(), bytes.end());
        entries_ += ",\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + sizes +
                    "],\"data_offsets\":[" + std::to_string(begin) + "," +
                    std::to_string(data_.size()) + "]}";
    }
    template <class T>
    void add_values(const std::string& name,
                    const std::string& dtype,
                    const std::vector<std::int64_t>& shape,
                    const std::vector<T>& values) {
        add(name, dtype, shape, std::as_bytes(std::span{values}));
    }
    /// As it is stored in a GGUF file: blocks become U8 with their type in the metadata.
    void add_stored(const std::string& name, const TensorView& tensor) {
        const std::span<const std::byte> bytes{tensor.data, tensor.bytes};
        const TypeTraits type = traits(tensor.type);
        if (type.block_elements == 1) {
            const bool vector = tensor.rows == 1;
            add(name, type.name,
                vector ? std::vector{tensor.cols} : std::vector{tensor.rows, tensor.cols}, bytes);
            return;
        }
        metadata["type." + name] = type.name;
        add(name, "U8", {tensor.rows, static_cast<std::int64_t>(tensor.row_bytes())}, bytes);
    }

    [[nodiscard]] std::vector<std::byte> bytes() const {
        std::string texts;
        for (const auto& [key, text] : metadata)
            texts += (texts.empty() ? "\"" : ",\"") + key + "\":\"" + text + "\"";
        return safetensors_bytes("{\"__metadata__\":{" + texts + "}" + entries_ + "}", data_);
    }
    void write(const std::filesystem::path& path) const {
        const std::vector<std::byte> all = bytes();
        std::ofstream file{path, std::ios::binary};
        file.write(reinterpret_cast<const char*>(all.data()),
                   static_cast<std::streamsize>(all.size()));
    }

private:
    std::string entries_;
    std::vector<std::byte> data_;
};

inline SafetensorsBuilder part_of(const std::string& kind, const ModelFile& target) {
    SafetensorsBuilder part;
    part.metadata = {{"paceline.format", "parts-1"},
                     {"paceline.part", kind},
                     {"paceline.target", fingerprint_text(target.fingerprint())},
                     {"paceline.name", "a test's " + kind},
                     {"licence", "CC0"}};
    return part;
}

inline void add_shape(SafetensorsBuilder& part, const ModelConfig& config) {
    part.metadata["dim"] = std::to_string(config.dim);
    part.metadata["heads"] = std::to_string(config.heads);
    part.metadata["kv_heads"] = std::to_string(config.kv_heads);
    part.metadata["head_dim"] = std::to_string(config.head_dim);
    part.metadata["ffn_dim"] = std::to_string(config.ffn_dim);
}

inline void add_tokens(SafetensorsBuilder& part, const std::vector<TokenId>& tokens) {
    part.add_values("tokens", "I32", {static_cast<std::int64_t>(tokens.size())}, tokens);
}

/// A layer of the target as the draft's layer `index`.
inline void add_layer(SafetensorsBuilder& part, int index, const LayerTensors& layer) {
    const std::string at = "layers." + std::to_string(index) + ".";
    const std::pair<const char*, const TensorView*> tensors[] = {{"attn_norm", &layer.attn_norm},
                                                                 {"q", &layer.q},
                                                                 {"k", &layer.k},
                                                                 {"v", &layer.v},
                                                                 {"attn_out", &layer.attn_out},
                                                                 {"ffn_norm", &layer.ffn_norm},
                                                                 {"gate", &layer.gate},
                                                                 {"up", &layer.up},
                                                                 {"down", &layer.down}};
    for (const auto& [name, tensor] : tensors) part.add_stored(at + name, *tensor);
}

/// A draft that is the target: all of its layers.
inline SafetensorsBuilder draft_of(const ModelFile& target, const std::vector<TokenId>& tokens) {
    SafetensorsBuilder part = part_of("draft", target);
    add_shape(part, target.config());
    part.metadata["layers"] = std::to_string(target.config().layers);
    for (int i = 0; i < target.config().layers; ++i) add_layer(part, i, target.layer(i));
    part.add_stored("output_norm", target.output_norm());
    add_tokens(part, tokens);
    return part;
}

/// An EAGLE draft of the target's last layer. F adds 0.75 of a token's embedding to 0.5 of the
/// feature, and a little of each number to its neighbour. With `layers`, J adds the states after
/// them, each less than the one before it.
inline SafetensorsBuilder eagle_of(const ModelFile& target,
                                   const std::vector<TokenId>& tokens,
                                   const std::vector<int>& layers = {}) {
    SafetensorsBuilder part = part_of("eagle", target);
    add_shape(part, target.config());
    part.metadata["layers"] = "1";
    add_layer(part, 0, target.layer(target.config().layers - 1));
    part.add_stored("output_norm", target.output_norm());
    const auto dim = static_cast<std::size_t>(target.config().dim);
    const auto rows = static_cast<std::int64_t>(dim);
    std::vector<float> fuse(dim * 2 * dim);
    for (std::size_t o = 0; o < dim; ++o) {
        fuse[o * 2 * dim + o] = 0.75F;
        fuse[o * 2 * dim + dim + o] = 0.5F;
        fuse[o * 2 * dim + dim + (o + 1) % dim] = 0.125F;
    }
    part.add_values("fuse", "F32", {rows, 2 * rows}, fuse);
    if (!layers.empty()) {
        const std::size_t width = layers.size() * dim;
        std::vector<float> join(dim * width);
        std::string names;
        for (std::size_t l = 0; l < layers.size(); ++l) {
            names += (names.empty() ? "" : ",") + std::to_string(layers[l]);
            for (std::size_t o = 0; o < dim; ++o)
                join[o * width + l * dim + o] = 1.0F / static_cast<float>(l + 1);
        }
        part.metadata["feature_layers"] = names;
        part.add_values("join", "F32", {rows, static_cast<std::int64_t>(width)}, join);
    }
    add_tokens(part, tokens);
    return part;
}

/// T = `diagonal` times the identity after each of `layers`, and for `ahead` tokens further on.
inline SafetensorsBuilder heads_of(const ModelFile& target,
                                   const std::vector<int>& layers,
                                   int ahead,
                                   const std::vector<TokenId>& tokens,
                                   float diagonal = 1.0F) {
    SafetensorsBuilder part = part_of("heads", target);
    part.metadata["norm_first"] = "1";
    const int dim = target.config().dim;
    std::vector<float> transform(static_cast<std::size_t>(dim) * static_cast<std::size_t>(dim));
    for (int i = 0; i < dim; ++i) transform[static_cast<std::size_t>(i * (dim + 1))] = diagonal;
    for (const int layer : layers) {
        part.metadata["exit." + std::to_string(layer)] = "1";
        part.add_values("exit." + std::to_string(layer) + ".transform", "F32", {dim, dim},
                        transform);
    }
    for (int j = 1; j <= ahead; ++j)
        part.add_values("ahead." + std::to_string(j) + ".transform", "F32", {dim, dim}, transform);
    add_tokens(part, tokens);
    return part;
}

/// Residual look-ahead heads with a fixed tree; W = `diagonal` times the identity.
inline SafetensorsBuilder medusa_of(const ModelFile& target,
                                    int ahead,
                                    const std::vector<TokenId>& tokens,
                                    const std::string& tree,
                                    float diagonal = 0.5F) {
    SafetensorsBuilder part = heads_of(target, {}, ahead, tokens, diagonal);
    part.metadata["ahead_block"] = "residual";
    if (!tree.empty()) part.metadata["ahead_tree"] = tree;
    return part;
}

/// The attention of the target's layer `layer` - 1 as an adapter after `layer` layers.
inline SafetensorsBuilder adapter_of(const ModelFile& target,
                                     int layer,
                                     const std::vector<TokenId>& tokens) {
    SafetensorsBuilder part = part_of("adapter", target);
    add_shape(part, target.config());
    const LayerTensors& from = target.layer(layer - 1);
    const std::string at = "adapter." + std::to_string(layer) + ".";
    part.add_stored(at + "attn_norm", from.attn_norm);
    part.add_stored(at + "q", from.q);
    part.add_stored(at + "k", from.k);
    part.add_stored(at + "v", from.v);
    part.add_stored(at + "attn_out", from.attn_out);
    part.add_stored(at + "out_norm", target.output_norm());
    add_tokens(part, tokens);
    return part;
}

}  // namespace paceline::test
