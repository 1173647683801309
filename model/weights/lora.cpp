#include "model/weights/lora.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fmt/core.h>
#include <memory>
#include <utility>

#include "model/weights/fingerprint.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {
namespace {

constexpr int kRankMax = 1024;
// Scales of groups, and weights of F16 files, are float16 in memory: a sum beyond its range could
// not be packed.
constexpr double kChangeMax = 65504.0;

struct Kind {
    const char* stem;  // as in the names of a GGUF file
    TensorView LayerTensors::*tensor;
};
constexpr std::array<Kind, 7> kMatrices = {{{"attn_q", &LayerTensors::q},
                                            {"attn_k", &LayerTensors::k},
                                            {"attn_v", &LayerTensors::v},
                                            {"attn_output", &LayerTensors::attn_out},
                                            {"ffn_gate", &LayerTensors::gate},
                                            {"ffn_up", &LayerTensors::up},
                                            {"ffn_down", &LayerTensors::down}}};

double largest_of(const std::vector<float>& numbers) {
    float largest = 0.0F;
    for (const float x : numbers) largest = std::max(largest, std::fabs(x));
    return static_cast<double>(largest);
}

LowRank read_update(
    PartReader& reader, const std::string& name, const TensorView& tensor, int rank, float scale) {
    LowRank update{.rank = rank, .scale = scale, .a = {}, .b = {}};
    update.a = reader.matrix_values(name + ".lora_a", rank, tensor.cols);
    update.b = reader.matrix_values(name + ".lora_b", tensor.rows, rank);
    const double change =
        std::fabs(static_cast<double>(scale)) * rank * largest_of(update.a) * largest_of(update.b);
    if (change > kChangeMax) {
        reader.fail(fmt::format("tensors {} and {} may change a weight by {:.3g}, more than {}",
                                quoted_text(name + ".lora_a"), quoted_text(name + ".lora_b"),
                                change, number_text(kChangeMax)));
    }
    return update;
}

std::uint64_t mixed(std::uint64_t content, const std::string& name, const LowRank& update) {
    content = mixed_fingerprint(content, fingerprint_of(std::as_bytes(std::span{name})));
    content = mixed_fingerprint(content, std::bit_cast<std::uint32_t>(update.scale));
    content = mixed_fingerprint(content, fingerprint_of(std::as_bytes(std::span{update.a})));
    return mixed_fingerprint(content, fingerprint_of(std::as_bytes(std::span{update.b})));
}

/// Reads the updates of `target`'s matrices; `places` are the matrices, in the order of the
/// updates.
LoraMerge read_merge(PartReader& reader, ModelParts& target, std::vector<TensorView*>& places) {
    LoraMerge merge;
    merge.card.rank = reader.number("rank", 1, kRankMax);
    merge.card.scale = static_cast<float>(reader.real("alpha") / merge.card.rank);
    merge.card.exits = reader.layers("exits");
    const std::vector<int> exit = reader.layers("exit");
    if (!exit.empty()) merge.card.exit = exit.front();
    for (std::size_t layer = 0; layer < target.layers.size() && reader.status().ok(); ++layer) {
        for (const Kind& kind : kMatrices) {
            const std::string name = fmt::format("blk.{}.{}", layer, kind.stem);
            if (!reader.has(name + ".lora_a") && !reader.has(name + ".lora_b")) continue;
            TensorView& tensor = target.layers[layer].*kind.tensor;
            merge.updates.push_back(
                read_update(reader, name, tensor, merge.card.rank, merge.card.scale));
            merge.content = mixed(merge.content, name, merge.updates.back());
            places.push_back(&tensor);
        }
    }
    merge.card.tensors = static_cast<int>(places.size());
    if (places.empty()) reader.fail("has no tensor \"blk.LAYER.KIND.lora_a\"");
    reader.refuse_leftovers();
    return merge;
}

/// Makes the views of `places`, and the same ones in the list of all tensors, point to their
/// updates.
void point_to(const std::vector<LowRank>& updates,
              const std::vector<TensorView*>& places,
              std::vector<TensorView>& all) {
    for (std::size_t i = 0; i < places.size(); ++i) {
        places[i]->added = &updates[i];
        const auto same = std::find_if(all.begin(), all.end(), [&](const TensorView& tensor) {
            return tensor.data == places[i]->data;
        });
        if (same != all.end()) same->added = &updates[i];
    }
}

}  // namespace

Result<ModelFile> merge_lora(ModelFile target, const std::string& path) {
    if (is_synthetic(target)) {
        return Error{Errc::BadArgument, path + " cannot be merged into " + target.path() +
                                            ", a shape without weights"};
    }
    if (target.lora() != nullptr) {
        return Error{Errc::BadArgument, path + " cannot be merged into " + target.path() +
                                            ", which has merged " + target.lora()->path};
    }
    Result<OpenedPart> part = open_part(path, PartKind::Lora, target);
    if (!part) return part.error();
    std::unique_ptr<ModelFile::Contents> contents = std::move(target).take_contents();
    PartReader reader{part.value().file, contents->parts.config};
    std::vector<TensorView*> places;
    contents->merge = read_merge(reader, contents->parts, places);
    if (!reader.status().ok()) return reader.status().error();
    contents->merge->card.path = path;
    contents->merge->card.name = part.value().card.name;
    point_to(contents->merge->updates, places, contents->parts.tensors);
    return ModelFile{std::move(contents)};
}

}  // namespace paceline
