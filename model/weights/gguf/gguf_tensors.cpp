#include "model/weights/gguf/gguf_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "ipc/base/check.hpp"
#include "ipc/base/checked.hpp"
#include "model/weights/config_limits.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

struct GgmlType {
    std::uint32_t number;  // as in the file
    const char* name;
    std::optional<StoredType> stored;  // absent: known by name, not readable yet
};
// A new block type is one line here, one enumerator of StoredType, its cases in tensor.cpp and a
// function of gguf_blocks.hpp.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", StoredType::F32},
    {1, "F16", StoredType::F16},
    {2, "Q4_0", StoredType::Q4_0},
    {3, "Q4_1", StoredType::Q4_1},
    {6, "Q5_0", StoredType::Q5_0},
    {7, "Q5_1", StoredType::Q5_1},
    {8, "Q8_0", StoredType::Q8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", StoredType::Q2_K},
    {11, "Q3_K", StoredType::Q3_K},
    {12, "Q4_K", StoredType::Q4_K},
    {13, "Q5_K", StoredType::Q5_K},
    {14, "Q6_K", StoredType::Q6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", StoredType::IQ4_NL},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", StoredType::IQ4_XS},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", StoredType::BF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", StoredType::MXFP4},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
};

Result<StoredType> stored_type(const GgufTensorInfo& info, const std::string& file) {
    for (const GgmlType& type : kGgmlTypes) {
        if (type.number != info.ggml_type) continue;
        if (type.stored) return *type.stored;
        return Error{Errc::Unsupported, file + ": tensor " + quoted_text(info.name) +
                                            " is stored as " + type.name +
                                            ", which is not supported; F32, F16, BF16, Q8_0, "
                                            "Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, "
                                            "IQ4_XS and MXFP4 are"};
    }
    return Error{Errc::Unsupported, fmt::format("{}: tensor {} has the unknown type number {}",
                                                file, quoted_text(info.name), info.ggml_type)};
}

/// Rows of the tensor as a matrix (all dimensions but the contiguous one), or nothing if that
/// exceeds a uint64.
std::optional<std::uint64_t> rows_of(const GgufTensorInfo& info) {
    std::uint64_t rows = 1;
    for (std::uint32_t d = 1; d < kGgufDimsMax; ++d) {
        const auto product = checked_mul<std::uint64_t>(rows, info.dims[d]);
        if (!product) return std::nullopt;
        rows = *product;
    }
    return rows;
}

Result<TensorView> view_tensor(std::span<const std::byte> data,
                               const GgufTensorInfo& info,
                               const std::string& file) {
    const auto bad = [&](const std::string& what) {
        return Error{Errc::BadFile, file + ": tensor " + quoted_text(info.name) + " " + what};
    };
    const Result<StoredType> type = stored_type(info, file);
    if (!type) return type.error();
    const TypeTraits shape = traits(type.value());
    const auto rows = rows_of(info);
    if (!rows) return bad("claims more rows than can be counted");
    if (info.dims[0] % shape.block_elements != 0) {
        return bad(fmt::format("has rows of {} elements, no multiple of {} as {} demands",
                               info.dims[0], shape.block_elements, shape.name));
    }
    const auto row_bytes =
        checked_mul<std::uint64_t>(info.dims[0] / shape.block_elements, shape.block_bytes);
    const auto size = row_bytes ? checked_mul<std::uint64_t>(*row_bytes, *rows) : std::nullopt;
    // The parser has established offset < data.size().
    if (!size || *size > data.size() - info.offset) {
        return bad(
            fmt::format("does not fit the file, which may be truncated: it needs {} bytes, {} are "
                        "left behind its offset",
                        (size ? std::to_string(*size) : std::string("more than 2^64")),
                        data.size() - info.offset));
    }
    // Inside the file there are at most four elements to a byte, so both counts fit an int64.
    return TensorView{.name = std::string(info.name),
                      .type = type.value(),
                      .rows = static_cast<std::int64_t>(*rows),
                      .cols = static_cast<std::int64_t>(info.dims[0]),
                      .data = data.data() + info.offset,
                      .bytes = *size};
}

Status check_disjoint(std::vector<const TensorView*> tensors, const std::string& file) {
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorView* a, const TensorView* b) { return a->data < b->data; });
    for (std::size_t i = 1; i < tensors.size(); ++i) {
        const TensorView& before = *tensors[i - 1];
        if (before.data + before.bytes > tensors[i]->data) {
            return Error{Errc::BadFile, file + ": tensors " + quoted_text(before.name) + " and " +
                                            quoted_text(tensors[i]->name) + " overlap"};
        }
    }
    return {};
}

/// Hands out the tensors by name and checks their shapes; the first error wins.
class Assigner {
public:
    Assigner(const std::vector<TensorView>& tensors, const std::string& file) : file_{file} {
        by_name_.reserve(tensors.size());
        for (const TensorView& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
    }

    [[nodiscard]] bool has(const std::string& name) const { return by_name_.contains(name); }
    [[nodiscard]] const Status& status() const { return status_; }

    TensorView matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
    TensorView vector(const std::string& name, std::int64_t count);
    /// Takes a bias that no layer has a place for, if it is there: it must be zero.
    void zeros(const std::string& name, std::int64_t count);
    void refuse_leftovers();
    void fail(Errc code, const std::string& what) {
        if (status_.ok()) status_ = Error{code, file_ + ": " + what};
    }

private:
    void check_finite(const TensorView& vector);

    const std::string& file_;
    std::unordered_map<std::string_view, const TensorView*> by_name_;
    Status status_;
};

std::string shape_of(std::int64_t rows, std::int64_t cols) {
    return fmt::format("[{}, {}]", rows, cols);
}

TensorView Assigner::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) {
        fail(Errc::BadFile, "tensor " + quoted_text(name) + " is missing");
        return {};
    }
    const TensorView& tensor = *found->second;
    by_name_.erase(found);
    if (tensor.rows != rows || tensor.cols != cols) {
        fail(Errc::BadFile, "tensor " + quoted_text(name) + " has shape " +
                                shape_of(tensor.rows, tensor.cols) +
                                ", the configuration demands " + shape_of(rows, cols));
    }
    return tensor;
}

TensorView Assigner::vector(const std::string& name, std::int64_t count) {
    TensorView tensor = matrix(name, 1, count);
    if (!status_.ok()) return tensor;
    if (traits(tensor.type).block_elements != 1) {
        fail(Errc::Unsupported, "tensor " + quoted_text(name) + " is stored as " +
                                    traits(tensor.type).name +
                                    "; norms and biases must be F32, F16 or BF16");
        return tensor;
    }
    check_finite(tensor);
    return tensor;
}

void Assigner::zeros(const std::string& name, std::int64_t count) {
    if (!has(name)) return;
    const TensorView bias = vector(name, count);
    if (!status_) return;
    std::vector<float> values(static_cast<std::size_t>(count));
    dequantize_row(bias, 0, values);
    const auto other = std::find_if(values.begin(), values.end(), [](float v) { return v != 0; });
    if (other == values.end()) return;
    fail(Errc::Unsupported,
         fmt::format("tensor {} holds {} at {}; this bias is supported only where it is zero",
                     quoted_text(name), number_text(static_cast<double>(*other)),
                     other - values.begin()));
}

void Assigner::check_finite(const TensorView& vector) {
    std::vector<float> values(static_cast<std::size_t>(vector.cols));
    dequantize_row(vector, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isfinite(values[i])) continue;
        fail(Errc::BadFile,
             fmt::format("tensor {} holds {} at {}; it must be finite", quoted_text(vector.name),
                         number_text(static_cast<double>(values[i])), i));
        return;
    }
}

void Assigner::refuse_leftovers() {
    if (by_name_.empty()) return;
    const auto first =
        std::min_element(by_name_.begin(), by_name_.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    fail(Errc::Unsupported, "tensor " + quoted_text(first->first) +
                                " has no place in this architecture; running without it would "
                                "change the model");
}

LayerTensors assign_layer(Assigner& assigner, const ModelConfig& config, int index) {
    const std::string block = fmt::format("blk.{}.", index);
    LayerTensors layer;
    layer.attn_norm = assigner.vector(block + "attn_norm.weight", config.dim);
    layer.q = assigner.matrix(block + "attn_q.weight", config.q_dim(), config.dim);
    layer.k = assigner.matrix(block + "attn_k.weight", config.kv_dim(), config.dim);
    layer.v = assigner.matrix(block + "attn_v.weight", config.kv_dim(), config.dim);
    layer.attn_out = assigner.matrix(block + "attn_output.weight", config.dim, config.q_dim());
    layer.ffn_norm = assigner.vector(block + "ffn_norm.weight", config.dim);
    layer.gate = assigner.matrix(block + "ffn_gate.weight", config.ffn_dim, config.dim);
    layer.up = assigner.matrix(block + "ffn_up.weight", config.ffn_dim, config.dim);
    layer.down = assigner.matrix(block + "ffn_down.weight", config.dim, config.ffn_dim);
    if (config.qkv_bias) {
        layer.q_bias = assigner.vector(block + "attn_q.bias", config.q_dim());
        layer.k_bias = assigner.vector(block + "attn_k.bias", config.kv_dim());
        layer.v_bias = assigner.vector(block + "attn_v.bias", config.kv_dim());
        assigner.zeros(block + "attn_output.bias", config.dim);
    }
    if (config.qk_norm) {
        layer.q_norm = assigner.vector(block + "attn_q_norm.weight", config.head_dim);
        layer.k_norm = assigner.vector(block + "attn_k_norm.weight", config.head_dim);
    }
    return layer;
}

/// The tensor `name`, by which base frequencies are divided.
std::vector<float> read_factors(Assigner& assigner, const char* name, int count) {
    const TensorView tensor = assigner.vector(name, count);
    if (!assigner.status()) return {};
    std::vector<float> factors(static_cast<std::size_t>(tensor.cols));
    dequantize_row(tensor, 0, factors);
    for (const float factor : factors) {
        if (factor >= 1e-4F && factor <= 1e6F) continue;
        assigner.fail(Errc::BadFile, std::string(name) + " holds the factor " +
                                         number_text(static_cast<double>(factor)) +
                                         "; possible are 0.0001 to 1000000");
        return {};
    }
    return factors;
}

void take_factors(Assigner& assigner, const char* name, RopeConfig& rope) {
    if (rope.scaling != RopeScaling::None) {
        assigner.fail(Errc::Unsupported,
                      std::string(name) + " together with another rope scaling is not supported");
        return;
    }
    rope.factors = read_factors(assigner, name, rope.dims / 2);
    rope.scaling = RopeScaling::Factors;
}

/// Llama 3's rope scaling is a tensor. Phi's are two: one for texts within the original context,
/// which the context is cut to, and one for longer texts (ModelFile::choose_rope).
void take_rope_factors(Assigner& assigner, ModelParts& parts) {
    constexpr const char* kLlama3 = "rope_freqs.weight";
    constexpr const char* kShort = "rope_factors_short.weight";
    constexpr const char* kLong = "rope_factors_long.weight";
    ModelConfig& config = parts.config;
    if (assigner.has(kLlama3)) take_factors(assigner, kLlama3, config.rope);
    if (!assigner.has(kShort)) {
        if (config.rope.scaling == RopeScaling::None) config.rope.attention_factor = 0.0F;
        return;
    }
    take_factors(assigner, kShort, config.rope);
    std::vector<float> factors = read_factors(assigner, kLong, config.rope.dims / 2);
    if (config.context_length <= config.rope.original_context) return;
    parts.long_rope = {
        .factors = std::move(factors),
        .context = config.context_length,
        .remark =
            fmt::format("the context is {} of {} tokens: with a larger one (-c) other rope factors "
                        "count, for short texts too ({})",
                        config.rope.original_context, config.context_length, kLong)};
    parts.remarks.push_back(parts.long_rope.remark);
    config.context_length = config.rope.original_context;
}

}  // namespace

std::uint32_t ggml_number(StoredType type) {
    const auto* found = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                     [&](const GgmlType& row) { return row.stored == type; });
    PACE_CHECK(found != std::end(kGgmlTypes), "every stored type has a number");
    return found->number;
}

Result<std::vector<TensorView>> view_tensors(std::span<const std::byte> bytes,
                                             const GgufHeader& header,
                                             const std::string& file) {
    const std::span<const std::byte> data = bytes.subspan(header.data_start);
    std::vector<TensorView> views;
    std::vector<const TensorView*> sorted;
    views.reserve(header.tensors.size());
    sorted.reserve(header.tensors.size());
    for (const GgufTensorInfo& info : header.tensors) {
        Result<TensorView> view = view_tensor(data, info, file);
        if (!view) return view.error();
        views.push_back(std::move(view).value());
        sorted.push_back(&views.back());
    }
    if (Status s = check_disjoint(std::move(sorted), file); !s) return s.error();
    return views;
}

Status assign_tensors(ModelParts& parts, const std::string& file) {
    ModelConfig& config = parts.config;
    Assigner assigner(parts.tensors, file);
    const auto embedding =
        std::find_if(parts.tensors.begin(), parts.tensors.end(),
                     [](const TensorView& t) { return t.name == "token_embd.weight"; });
    if (embedding != parts.tensors.end() && config.vocab_size == 0) {
        constexpr std::int64_t kVocabMax = config_limits::kVocabMax;
        if (embedding->rows > kVocabMax) {
            assigner.fail(Errc::BadFile,
                          fmt::format("tensor \"token_embd.weight\" has {} rows; the limit is {}",
                                      embedding->rows, kVocabMax));
        }
        config.vocab_size = static_cast<int>(std::min(embedding->rows, kVocabMax));
    }
    config.qkv_bias = config.qkv_bias || assigner.has("blk.0.attn_q.bias");
    config.tied_embeddings = !assigner.has("output.weight");

    parts.embedding = assigner.matrix("token_embd.weight", config.vocab_size, config.dim);
    parts.output_norm = assigner.vector("output_norm.weight", config.dim);
    parts.output_head = config.tied_embeddings
                            ? parts.embedding
                            : assigner.matrix("output.weight", config.vocab_size, config.dim);
    take_rope_factors(assigner, parts);
    for (int i = 0; i < config.layers && assigner.status().ok(); ++i) {
        parts.layers.push_back(assign_layer(assigner, config, i));
    }
    if (assigner.status().ok()) assigner.refuse_leftovers();
    return assigner.status();
}

}  // namespace paceline
