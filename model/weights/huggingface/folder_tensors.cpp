#include "model/weights/huggingface/folder_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <string_view>

#include "model/weights/huggingface/tensor_types.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// Hands out the tensors by name and checks them; the first error wins.
class Assigner {
public:
    Assigner(const Shards& shards, const std::string& folder) : folder_{folder} {
        for (const ShardTensor& tensor : shards.tensors)
            left_.emplace(tensor.tensor.name, &tensor.tensor);
    }
    [[nodiscard]] bool has(const std::string& name) const { return left_.contains(name); }
    [[nodiscard]] const Status& status() const { return status_; }

    /// The tensor that is called `name` in the folder, as one that is called `as`.
    TensorView take(const std::string& name,
                    const std::string& as,
                    std::int64_t rows,
                    std::int64_t cols);
    /// Whether a bias that no layer has a place for is zero, so that it may be left out.
    void take_zeros(const std::string& name, std::int64_t count);
    void refuse_leftovers();

private:
    void fail(Errc code, const std::string& what) {
        if (status_.ok()) status_ = Error{code, folder_ + ": tensor " + what};
    }
    void check_finite(const TensorView& vector, const std::string& name);

    const std::string& folder_;
    std::map<std::string_view, const StoredTensor*> left_;
    Status status_;
};

TensorView Assigner::take(const std::string& name,
                          const std::string& as,
                          std::int64_t rows,
                          std::int64_t cols) {
    const auto found = left_.find(name);
    if (found == left_.end()) {
        fail(Errc::BadFile, paceline::quoted_text(name) + " is missing");
        return {};
    }
    const StoredTensor& tensor = *found->second;
    left_.erase(found);
    const std::optional<StoredType> type = stored_type(tensor.type);
    if (!type) {
        fail(Errc::Unsupported,
             describe(tensor) + " has a dtype that is not supported; BF16, F16 and F32 are");
        return {};
    }
    const bool vector = rows == 1;
    const std::vector<std::int64_t> wanted = vector ? std::vector{cols} : std::vector{rows, cols};
    if (tensor.shape != wanted) {
        fail(Errc::BadFile,
             describe(tensor) + " does not have the shape that config.json demands, " +
                 (vector ? fmt::format("[{}]", cols) : fmt::format("[{}, {}]", rows, cols)));
        return {};
    }
    TensorView view{.name = as,
                    .type = *type,
                    .rows = rows,
                    .cols = cols,
                    .data = tensor.bytes.data(),
                    .bytes = tensor.bytes.size()};
    if (vector) check_finite(view, name);
    return view;
}

void Assigner::check_finite(const TensorView& vector, const std::string& name) {
    std::vector<float> values(static_cast<std::size_t>(vector.cols));
    dequantize_row(vector, 0, values);
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return;
    fail(Errc::BadFile,
         fmt::format("{} holds {} at {}; it must be finite", paceline::quoted_text(name),
                     number_text(static_cast<double>(*bad)), bad - values.begin()));
}

void Assigner::take_zeros(const std::string& name, std::int64_t count) {
    if (!has(name)) return;
    const TensorView bias = take(name, name, 1, count);
    if (!status_) return;
    std::vector<float> values(static_cast<std::size_t>(count));
    dequantize_row(bias, 0, values);
    const auto other = std::find_if(values.begin(), values.end(), [](float v) { return v != 0; });
    if (other == values.end()) return;
    fail(Errc::Unsupported,
         fmt::format("{} holds {} at {}; this bias is supported only where it is zero",
                     paceline::quoted_text(name), number_text(static_cast<double>(*other)),
                     other - values.begin()));
}

void Assigner::refuse_leftovers() {
    for (const auto& [name, tensor] : left_) {
        if (name.ends_with(".rotary_emb.inv_freq")) continue;  // computed from the configuration
        fail(Errc::Unsupported, paceline::quoted_text(name) +
                                    " has no place in this architecture; running without it would "
                                    "change the model");
    }
}

/// A vector of one number is a vector, whatever its rows: rules say One for the first side.
void assign_rule(Assigner& assigner,
                 const TensorRule& rule,
                 int index,
                 const ModelConfig& config,
                 LayerTensors& layer,
                 std::vector<TensorView>& all) {
    TensorView view = assigner.take(fmt::format("model.layers.{}.{}", index, rule.suffix),
                                    fmt::format("blk.{}.{}", index, rule.name),
                                    length_of(rule.rows, config), length_of(rule.cols, config));
    // Of a vector put_in_order() has changed the order itself.
    if (rule.order == RowOrder::PairsOfHeads && view.rows > 1) view.head_rows = config.head_dim;
    if (rule.place != nullptr) {
        layer.*rule.place = view;
    } else {
        layer.*rule.optional_place = view;
    }
    all.push_back(std::move(view));
}

bool same_bytes(const TensorView& a, const TensorView& b) {
    return a.type == b.type && a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0;
}

/// What transformers does: a head that is there and is not the embedding counts, whatever
/// tie_word_embeddings says; where only one of the two is there, it serves both if they are tied.
void assign_ends(Assigner& assigner, ModelParts& parts) {
    ModelConfig& config = parts.config;
    const bool head_only =
        config.tied_embeddings && !assigner.has(kEmbedding) && assigner.has(kHead);
    parts.embedding = assigner.take(head_only ? kHead : kEmbedding, "token_embd.weight",
                                    config.vocab_size, config.dim);
    parts.tensors.push_back(parts.embedding);
    if (!config.tied_embeddings || assigner.has(kHead)) {
        const TensorView head =
            assigner.take(kHead, "output.weight", config.vocab_size, config.dim);
        if (!assigner.status()) return;
        if (config.tied_embeddings) config.tied_embeddings = same_bytes(parts.embedding, head);
        if (!config.tied_embeddings) {
            parts.output_head = head;
            parts.tensors.push_back(head);
        }
    }
    if (config.tied_embeddings) parts.output_head = parts.embedding;
    parts.output_norm = assigner.take("model.norm.weight", "output_norm.weight", 1, config.dim);
    parts.tensors.push_back(parts.output_norm);
}

}  // namespace

Status assign_tensors(const FolderConfig& config,
                      const Shards& shards,
                      const std::string& folder,
                      ModelParts& parts) {
    Assigner assigner(shards, folder);
    assign_ends(assigner, parts);
    for (int i = 0; i < parts.config.layers && assigner.status().ok(); ++i) {
        LayerTensors layer;
        for (const std::span<const TensorRule> rules : config.architecture->layer) {
            for (const TensorRule& rule : rules)
                assign_rule(assigner, rule, i, parts.config, layer, parts.tensors);
        }
        if (parts.config.qkv_bias) {
            for (const TensorRule& rule : config.architecture->biases)
                assign_rule(assigner, rule, i, parts.config, layer, parts.tensors);
            assigner.take_zeros(fmt::format("model.layers.{}.self_attn.o_proj.bias", i),
                                parts.config.dim);
        }
        parts.layers.push_back(std::move(layer));
    }
    if (assigner.status().ok()) assigner.refuse_leftovers();
    return assigner.status();
}

}  // namespace paceline::huggingface
