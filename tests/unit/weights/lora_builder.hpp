// LoRA parts for tests: random ones of a size that is seen in the logits, and the reference
// implementation of a merge.
#pragma once

#include <cmath>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "model/weights/model_parts.hpp"
#include "model/weights/safetensors_file.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline::test {

inline const std::vector<std::pair<std::string, TensorView LayerTensors::*>>& lora_kinds() {
    static const std::vector<std::pair<std::string, TensorView LayerTensors::*>> kinds{
        {"attn_q", &LayerTensors::q},      {"attn_k", &LayerTensors::k},
        {"attn_v", &LayerTensors::v},      {"attn_output", &LayerTensors::attn_out},
        {"ffn_gate", &LayerTensors::gate}, {"ffn_up", &LayerTensors::up},
        {"ffn_down", &LayerTensors::down}};
    return kinds;
}

/// What a random LoRA is like.
struct LoraOf {
    int rank = 4;
    int alpha = 8;
    double share = 0.3;               // Frobenius norm of scale * B A over that of W
    bool half = false;                // F16, else F32
    std::set<std::string> only = {};  // "blk.1.attn_q"; empty: all seven kinds of all layers
    unsigned seed = 1;
};

inline double norm_of(const TensorView& tensor) {
    std::vector<float> row(static_cast<std::size_t>(tensor.cols));
    double squares = 0.0;
    for (std::int64_t r = 0; r < tensor.rows; ++r) {
        dequantize_row(tensor, r, row);
        for (const float x : row) squares += static_cast<double>(x) * static_cast<double>(x);
    }
    return std::sqrt(squares);
}

inline void add_factor(SafetensorsBuilder& part,
                       const std::string& name,
                       const std::vector<std::int64_t>& shape,
                       const std::vector<float>& numbers,
                       bool half) {
    if (!half) return part.add_values(name, "F32", shape, numbers);
    std::vector<std::uint16_t> halves;
    for (const float x : numbers) halves.push_back(float_to_half(x));
    part.add_values(name, "F16", shape, halves);
}

inline SafetensorsBuilder lora_of(const ModelFile& target, const LoraOf& what) {
    SafetensorsBuilder part = part_of("lora", target);
    part.metadata["rank"] = std::to_string(what.rank);
    part.metadata["alpha"] = std::to_string(what.alpha);
    part.metadata["exits"] = "1";
    std::mt19937 rng{what.seed};
    std::normal_distribution<float> normal;
    const auto numbers = [&](std::int64_t count, double spread) {
        std::vector<float> out(static_cast<std::size_t>(count));
        for (float& x : out) {
            x = static_cast<float>(spread) * normal(rng);
            if (what.half) x = half_to_float(float_to_half(x));
        }
        return out;
    };
    for (int layer = 0; layer < target.config().layers; ++layer) {
        for (const auto& [stem, member] : lora_kinds()) {
            const std::string name = "blk." + std::to_string(layer) + "." + stem;
            if (!what.only.empty() && !what.only.contains(name)) continue;
            const TensorView& tensor = target.layer(layer).*member;
            // An entry of B A has the variance rank * var(a) * var(b).
            const double scale = static_cast<double>(what.alpha) / what.rank;
            const auto size = static_cast<double>(tensor.rows * tensor.cols);
            const double spread =
                what.share * norm_of(tensor) / std::sqrt(size * what.rank) / scale;
            add_factor(part, name + ".lora_a", {what.rank, tensor.cols},
                       numbers(what.rank * tensor.cols, 1.0), what.half);
            add_factor(part, name + ".lora_b", {tensor.rows, what.rank},
                       numbers(tensor.rows * what.rank, spread), what.half);
        }
    }
    return part;
}

inline std::vector<double> factor_of(const SafetensorsFile& file, const std::string& name) {
    const StoredTensor* tensor = file.find(name);
    REQUIRE(tensor != nullptr);
    const bool half = tensor->type == SafetensorsType::F16;
    const std::size_t width = half ? 2 : 4;
    std::vector<double> out(tensor->bytes.size() / width);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::byte* at = tensor->bytes.data() + i * width;
        float value = 0.0F;
        if (half) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, at, sizeof bits);
            value = half_to_float(bits);
        } else {
            std::memcpy(&value, at, sizeof value);
        }
        out[i] = static_cast<double>(value);
    }
    return out;
}

/// W + alpha / rank * B A, number by number in float64.
inline std::vector<float> merged_by_hand(const TensorView& tensor,
                                         const SafetensorsFile& lora,
                                         const std::string& name) {
    const double rank = std::stod(*lora.metadata("rank"));
    const double scale = std::stod(*lora.metadata("alpha")) / rank;
    const std::vector<double> a = factor_of(lora, name + ".lora_a");
    const std::vector<double> b = factor_of(lora, name + ".lora_b");
    const auto cols = static_cast<std::size_t>(tensor.cols);
    const auto width = static_cast<std::size_t>(rank);
    std::vector<float> out(static_cast<std::size_t>(tensor.rows) * cols);
    std::vector<float> row(cols);
    for (std::size_t r = 0; r < static_cast<std::size_t>(tensor.rows); ++r) {
        dequantize_row(tensor, static_cast<std::int64_t>(r), row);
        for (std::size_t c = 0; c < cols; ++c) {
            double sum = 0.0;
            for (std::size_t k = 0; k < width; ++k) sum += b[r * width + k] * a[k * cols + c];
            out[r * cols + c] = static_cast<float>(static_cast<double>(row[c]) + scale * sum);
        }
    }
    return out;
}

/// `target` as a file whose merged matrices are float32: what merge_lora() has to be equal to. The
/// bytes are written to `folder`, those of the matrices behind those of the target.
inline ModelFile merged_reference(const ModelFile& target,
                                  const std::string& lora_path,
                                  const TestFolder& folder) {
    const Result<SafetensorsFile> lora = SafetensorsFile::open(lora_path);
    REQUIRE(lora.ok());
    const std::span<const std::byte> own = target.contents().file.bytes();
    std::vector<std::byte> all{own.begin(), own.end()};
    ModelParts parts = target.contents().parts;
    std::vector<std::pair<TensorView*, std::size_t>> moved;  // and where its numbers are
    for (int layer = 0; layer < target.config().layers; ++layer) {
        for (const auto& [stem, member] : lora_kinds()) {
            const std::string name = "blk." + std::to_string(layer) + "." + stem;
            if (lora.value().find(name + ".lora_a") == nullptr) continue;
            TensorView& tensor = parts.layers[static_cast<std::size_t>(layer)].*member;
            const std::vector<float> numbers = merged_by_hand(tensor, lora.value(), name);
            const auto bytes = std::as_bytes(std::span{numbers});
            all.resize((all.size() + 31) / 32 * 32);
            moved.emplace_back(&tensor, all.size());
            all.insert(all.end(), bytes.begin(), bytes.end());
            tensor.type = StoredType::F32;
            tensor.bytes = bytes.size();
        }
    }
    const std::string path = (folder.path() / "reference.gguf").string();
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<const char*>(all.data()),
                                                static_cast<std::streamsize>(all.size()));
    Result<MappedFile> mapped = MappedFile::open(path);
    REQUIRE(mapped.ok());
    const std::byte* base = mapped.value().bytes().data();
    const auto move = [&](TensorView& tensor) { tensor.data = base + (tensor.data - own.data()); };
    for (LayerTensors& layer : parts.layers) {
        for (TensorView* tensor : {&layer.attn_norm, &layer.q, &layer.k, &layer.v, &layer.attn_out,
                                   &layer.ffn_norm, &layer.gate, &layer.up, &layer.down})
            move(*tensor);
        for (std::optional<TensorView>* tensor :
             {&layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm})
            if (*tensor) move(**tensor);
    }
    for (TensorView* tensor : {&parts.embedding, &parts.output_norm, &parts.output_head})
        move(*tensor);
    for (const auto& [tensor, at] : moved) tensor->data = base + at;
    parts.tensors.clear();
    return ModelFile{std::make_unique<ModelFile::Contents>(
        ModelFile::Contents{std::move(mapped).value(), std::move(parts)})};
}

}  // namespace paceline::test
