#include "model/weights/gguf/gguf_fused.hpp"

#include <array>
#include <fmt/core.h>
#include <span>
#include <utility>
#include <vector>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

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
                                 quoted(fused.name), fused.rows, all)};
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

}  // namespace

Status split_fused(ModelParts& parts, const std::string& file) {
    constexpr std::string_view kQkv = "attn_qkv.weight";
    constexpr std::string_view kGateUp = "ffn_up.weight";
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
