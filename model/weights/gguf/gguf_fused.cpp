#include "model/weights/gguf/gguf_fused.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::string_view kQkv = "attn_qkv.weight";
constexpr std::string_view kGateUp = "ffn_up.weight";

struct Part {
    const char* name;
    std::int64_t rows;
};

/// Adds the parts of `fused` to `out`, in the order of their rows.
Status split(const TensorView& fused,
             std::string_view suffix,
             std::span<const Part> parts,
             const std::string& file,
             std::vector<TensorView>& out) {
    std::int64_t all = 0;
    for (const Part& part : parts) all += part.rows;
    if (fused.rows != all) {
        return Error{Errc::BadFile,
                     fmt::format("{}: tensor {} has {} rows, the configuration demands {}", file,
                                 quoted_text(fused.name), fused.rows, all)};
    }
    const std::string block = fused.name.substr(0, fused.name.size() - suffix.size());
    const std::size_t row_bytes = fused.row_bytes();
    std::int64_t first = 0;
    for (const Part& part : parts) {
        TensorView view = fused;
        view.name = block + part.name;
        view.rows = part.rows;
        view.data = fused.data + static_cast<std::size_t>(first) * row_bytes;
        view.bytes = static_cast<std::size_t>(part.rows) * row_bytes;
        out.push_back(std::move(view));
        first += part.rows;
    }
    return {};
}

/// A matrix that is written in place of its first part; the others are left out.
struct Joint {
    std::string_view first;
    std::vector<std::string_view> others;
    std::string_view joined;
};

const std::array<Joint, 2>& joints() {
    static const std::array<Joint, 2> all{
        {{"attn_q.weight", {"attn_k.weight", "attn_v.weight"}, kQkv},
         {"ffn_gate.weight", {kGateUp}, kGateUp}}};
    return all;
}

bool is_further_part(std::string_view name) {
    return std::any_of(joints().begin(), joints().end(), [&](const Joint& joint) {
        return std::any_of(joint.others.begin(), joint.others.end(),
                           [&](std::string_view suffix) { return name.ends_with(suffix); });
    });
}

/// Whether the rows of `part` lie right behind those of `before`.
bool follows(const TensorView& part, const TensorView& before) {
    return part.data == before.data + before.bytes && part.type == before.type &&
           part.cols == before.cols && part.head_rows == 0 && before.head_rows == 0;
}

}  // namespace

Result<std::vector<TensorView>> join_fused(const std::vector<TensorView>& tensors,
                                           const std::string& file) {
    std::unordered_map<std::string_view, const TensorView*> by_name;
    for (const TensorView& tensor : tensors) by_name.emplace(tensor.name, &tensor);
    std::vector<TensorView> out;
    for (const TensorView& tensor : tensors) {
        if (is_further_part(tensor.name)) continue;
        TensorView whole = tensor;
        for (const Joint& joint : joints()) {
            if (!tensor.name.ends_with(joint.first)) continue;
            const std::string block =
                tensor.name.substr(0, tensor.name.size() - joint.first.size());
            whole.name = block + std::string{joint.joined};
            for (const std::string_view suffix : joint.others) {
                const std::string name = block + std::string{suffix};
                const auto part = by_name.find(name);
                if (part == by_name.end() || !follows(*part->second, whole)) {
                    return Error{Errc::Unsupported,
                                 fmt::format("{}: tensor {} does not lie behind those that {} "
                                             "begins with, which cannot be written",
                                             file, quoted_text(name), quoted_text(whole.name))};
                }
                whole.rows += part->second->rows;
                whole.bytes += part->second->bytes;
            }
        }
        out.push_back(std::move(whole));
    }
    return out;
}

Status split_fused(ModelParts& parts, const std::string& file) {
    const ModelConfig& config = parts.config;
    const std::array<Part, 3> qkv{{{"attn_q.weight", config.q_dim()},
                                   {"attn_k.weight", config.kv_dim()},
                                   {"attn_v.weight", config.kv_dim()}}};
    const std::array<Part, 2> gate_up{
        {{"ffn_gate.weight", config.ffn_dim}, {"ffn_up.weight", config.ffn_dim}}};
    std::vector<TensorView> split_ones;
    for (TensorView& tensor : parts.tensors) {
        Status done;
        if (tensor.name.starts_with("blk.") && tensor.name.ends_with(kQkv)) {
            done = split(tensor, kQkv, qkv, file, split_ones);
        } else if (tensor.name.starts_with("blk.") && tensor.name.ends_with(kGateUp)) {
            done = split(tensor, kGateUp, gate_up, file, split_ones);
        } else {
            split_ones.push_back(std::move(tensor));
        }
        if (!done) return done;
    }
    parts.tensors = std::move(split_ones);
    return {};
}

}  // namespace paceline
