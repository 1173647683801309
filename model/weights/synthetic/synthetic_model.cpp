#include "model/weights/synthetic/synthetic_model.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/utf8.hpp"
#include "model/weights/config_limits.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {
namespace {

constexpr int kVectorMax = config_limits::kDimMax;
using config_limits::kHeadDimMax;
constexpr std::size_t kShapeBytesMax = 64 << 10;  // far more than people write

/// Vectors of all shapes point here: numbers that every norm (ones) or bias (zeros) may have.
const float* constant(float value) {
    static const std::vector<float> ones(kVectorMax, 1.0f);
    static const std::vector<float> zeros(kVectorMax, 0.0f);
    return value > 0.0f ? ones.data() : zeros.data();
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// The keys of a shape; the first mistake is kept, and what is read after it does not matter.
class Shape {
public:
    Shape(std::string path, std::string_view text) : path_{std::move(path)} {
        text = utf8::without_mark(text);
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find('\n', begin), text.size());
            const std::string_view all = text.substr(begin, end - begin);
            const std::string_view line = trimmed(all.substr(0, all.find('#')));
            begin = end + 1;
            if (line.empty()) continue;
            const std::size_t equals = line.find('=');
            if (equals == std::string_view::npos) {
                fail("'" + visible(line) + "' is not of the form key = value");
                continue;
            }
            const std::string key{trimmed(line.substr(0, equals))};
            const std::string value{trimmed(line.substr(equals + 1))};
            const auto [known, is_new] = values_.emplace(key, value);
            if (!is_new) {
                fail(visible(key) + " is there twice, as " + visible(known->second) + " and as " +
                     visible(value));
            }
        }
    }

    int number(const char* key, int low, int high, std::optional<int> otherwise = {}) {
        return any<int>(key, low, high, otherwise);
    }
    float real(const char* key, float low, float high, float otherwise) {
        return any<float>(key, low, high, otherwise);
    }
    bool flag(const char* key) {
        const std::string value = take(key).value_or("false");
        if (value != "true" && value != "false")
            fail(std::string{key} + " = " + visible(value) + ", must be true or false");
        return value == "true";
    }
    std::string text(const char* key, std::string otherwise) {
        std::optional<std::string> value = take(key);
        if (!value) return otherwise;
        if (value->size() < 2 || value->front() != '"' || value->back() != '"') {
            fail(std::string{key} + " = " + visible(*value) +
                 ", must be a text in quotation marks");
            return otherwise;
        }
        return value->substr(1, value->size() - 2);
    }
    void fail(const std::string& what) {
        if (wrong_.empty()) wrong_ = path_ + ": " + what;
    }
    /// Once all keys have been read.
    [[nodiscard]] Status status() const {
        if (values_.empty() && wrong_.empty()) return {};
        if (values_.empty()) return Error{Errc::BadFile, wrong_};
        // What is missing may be there under a wrong name: both are told.
        const auto& [key, value] = *values_.begin();
        const std::string unknown =
            visible(key) + " = " + visible(value) + " is not a key of a shape";
        return Error{Errc::BadFile,
                     wrong_.empty() ? path_ + ": " + unknown : wrong_ + "; " + unknown};
    }

private:
    std::optional<std::string> take(const char* key) {
        const auto found = values_.find(key);
        if (found == values_.end()) return {};
        std::string value = std::move(found->second);
        values_.erase(found);
        return value;
    }
    template <class Number>
    Number any(const char* key, Number low, Number high, std::optional<Number> otherwise) {
        const std::optional<std::string> text = take(key);
        if (!text) {
            if (!otherwise) fail(std::string{key} + " is missing");
            return otherwise.value_or(low);
        }
        Number value{};
        const char* last = text->data() + text->size();
        const auto [end, code] = std::from_chars(text->data(), last, value);
        if (code == std::errc{} && end == last && value >= low && value <= high) return value;
        fail(
            fmt::format("{} = {}, must be a number from {} to {}", key, visible(*text), low, high));
        return low;
    }

    std::string path_;
    std::map<std::string, std::string> values_;
    std::string wrong_;
};

/// The stored types of a model's matrices.
struct ShapeTypes {
    StoredType most = StoredType::BF16;
    StoredType more = StoredType::BF16;  // of the head, and of v and down where has_more_bits()
};

constexpr std::pair<const char*, ShapeTypes> kShapeTypes[] = {
    {"f32", {StoredType::F32, StoredType::F32}},
    {"f16", {StoredType::F16, StoredType::F16}},
    {"bf16", {StoredType::BF16, StoredType::BF16}},
    {"q8_0", {StoredType::Q8_0, StoredType::Q8_0}},
    {"q4_0", {StoredType::Q4_0, StoredType::Q4_0}},
    {"q4_1", {StoredType::Q4_1, StoredType::Q4_1}},
    {"q5_0", {StoredType::Q5_0, StoredType::Q5_0}},
    {"q5_1", {StoredType::Q5_1, StoredType::Q5_1}},
    {"q2_k", {StoredType::Q2_K, StoredType::Q2_K}},
    {"q3_k", {StoredType::Q3_K, StoredType::Q3_K}},
    {"q4_k", {StoredType::Q4_K, StoredType::Q4_K}},
    {"q5_k", {StoredType::Q5_K, StoredType::Q5_K}},
    {"q6_k", {StoredType::Q6_K, StoredType::Q6_K}},
    {"iq4_nl", {StoredType::IQ4_NL, StoredType::IQ4_NL}},
    {"iq4_xs", {StoredType::IQ4_XS, StoredType::IQ4_XS}},
    {"mxfp4", {StoredType::MXFP4, StoredType::MXFP4}},
    {"q4_k_m", {StoredType::Q4_K, StoredType::Q6_K}},
    {"q5_k_m", {StoredType::Q5_K, StoredType::Q6_K}},
};

ShapeTypes read_types(Shape& shape) {
    const std::string wanted = shape.text("type", "bf16");
    std::string possible;
    for (const auto& [word, types] : kShapeTypes) {
        if (wanted == word) return types;
        possible += possible.empty() ? word : std::string{", "} + word;
    }
    shape.fail("type = \"" + visible(wanted) + "\", possible are " + possible);
    return {};
}

/// Whether v and down of a layer have the larger type, as in the mixes of llama-quantize.
bool has_more_bits(int layer, int layers) {
    const int eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

int read_head_dim(Shape& shape, const ModelConfig& config) {
    const int head_dim = shape.number("head_dim", 2, kHeadDimMax, config.dim / config.heads);
    if (head_dim < 2 || head_dim > kHeadDimMax || head_dim % 2 != 0)
        shape.fail(fmt::format(
            "head_dim = {} (dim / heads if it is not there), must be an even number from 2 to {}",
            head_dim, kHeadDimMax));
    return head_dim;
}

ModelConfig read_config(Shape& shape) {
    ModelConfig config;
    config.name = shape.text("name", "random");
    config.layers = shape.number("layers", 1, 1024);
    config.dim = shape.number("dim", 32, kVectorMax);
    config.heads = shape.number("heads", 1, 1024);
    config.kv_heads = shape.number("kv_heads", 1, 1024, config.heads);
    config.head_dim = read_head_dim(shape, config);
    config.ffn_dim = shape.number("ffn_dim", 32, 1 << 20);
    config.vocab_size = shape.number("vocab_size", 1, 1 << 20);
    config.context_length = shape.number("context_length", 1, 1 << 24, 8192);
    config.norm_epsilon = shape.real("norm_epsilon", 0.0f, 1.0f, 1e-5f);
    config.qkv_bias = shape.flag("qkv_bias");
    config.qk_norm = shape.flag("qk_norm");
    config.tied_embeddings = shape.flag("tied_embeddings");
    config.rope.base = shape.real("rope_base", 1.0f, 1e9f, 10000.0f);
    config.rope.dims = config.head_dim;
    if (config.heads % config.kv_heads != 0)
        shape.fail(
            fmt::format("kv_heads = {}, must divide heads = {}", config.kv_heads, config.heads));
    if (config.q_dim() > kVectorMax)
        shape.fail(
            fmt::format("heads = {} of head_dim = {}, at most {} numbers together are possible",
                        config.heads, config.head_dim, kVectorMax));
    return config;
}

TensorView vector_of(const std::string& name, int size, float value) {
    TensorView tensor{name, StoredType::F32, 1, size};
    tensor.data = reinterpret_cast<const std::byte*>(constant(value));
    tensor.bytes = static_cast<std::size_t>(size) * sizeof(float);
    return tensor;
}

/// A matrix without bytes.
TensorView matrix_of(Shape& shape, const std::string& name, StoredType type, int rows, int cols) {
    const TypeTraits of = traits(type);
    TensorView tensor{name, type, rows, cols};
    if (static_cast<std::uint32_t>(cols) % of.block_elements != 0)
        shape.fail(fmt::format("{} has {} columns, for type {} a multiple of {} is needed", name,
                               cols, of.name, of.block_elements));
    tensor.bytes = static_cast<std::size_t>(rows) *
                   (static_cast<std::size_t>(cols) / of.block_elements) * of.block_bytes;
    return tensor;
}

/// Names are those of GGUF; a tensor's numbers follow from its name.
LayerTensors layer_of(Shape& shape, const ModelConfig& config, const ShapeTypes& types, int index) {
    const auto named = [index](const char* name) { return fmt::format("blk.{}.{}", index, name); };
    const StoredType more = has_more_bits(index, config.layers) ? types.more : types.most;
    const auto matrix_in = [&](StoredType type, const char* name, int rows, int cols) {
        return matrix_of(shape, named(name), type, rows, cols);
    };
    const auto matrix = [&](const char* name, int rows, int cols) {
        return matrix_in(types.most, name, rows, cols);
    };
    const auto vector = [&](const char* name, int size, float value) {
        return vector_of(named(name), size, value);
    };
    LayerTensors layer;
    layer.attn_norm = vector("attn_norm.weight", config.dim, 1.0f);
    layer.q = matrix("attn_q.weight", config.q_dim(), config.dim);
    layer.k = matrix("attn_k.weight", config.kv_dim(), config.dim);
    layer.v = matrix_in(more, "attn_v.weight", config.kv_dim(), config.dim);
    layer.attn_out = matrix("attn_output.weight", config.dim, config.q_dim());
    layer.ffn_norm = vector("ffn_norm.weight", config.dim, 1.0f);
    layer.gate = matrix("ffn_gate.weight", config.ffn_dim, config.dim);
    layer.up = matrix("ffn_up.weight", config.ffn_dim, config.dim);
    layer.down = matrix_in(more, "ffn_down.weight", config.dim, config.ffn_dim);
    if (config.qkv_bias) {
        layer.q_bias = vector("attn_q.bias", config.q_dim(), 0.0f);
        layer.k_bias = vector("attn_k.bias", config.kv_dim(), 0.0f);
        layer.v_bias = vector("attn_v.bias", config.kv_dim(), 0.0f);
    }
    if (config.qk_norm) {
        layer.q_norm = vector("attn_q_norm.weight", config.head_dim, 1.0f);
        layer.k_norm = vector("attn_k_norm.weight", config.head_dim, 1.0f);
    }
    return layer;
}

/// All of them, for those who count or name a model's tensors.
std::vector<TensorView> list_of(const ModelParts& parts) {
    std::vector<TensorView> list{parts.embedding};
    for (const LayerTensors& layer : parts.layers) {
        for (const TensorView* tensor :
             {&layer.attn_norm, &layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.ffn_norm,
              &layer.gate, &layer.up, &layer.down})
            list.push_back(*tensor);
        for (const auto& tensor :
             {layer.q_bias, layer.k_bias, layer.v_bias, layer.q_norm, layer.k_norm}) {
            if (tensor) list.push_back(*tensor);
        }
    }
    list.push_back(parts.output_norm);
    if (!parts.config.tied_embeddings) list.push_back(parts.output_head);
    return list;
}

/// Whoever gives a model here has gigabytes of no lines.
Status check_is_text(const std::string& path, std::string_view text) {
    if (text.starts_with("GGUF"))
        return Error{Errc::BadFile, path + ": is a model, not a shape: give it with -m"};
    if (text.size() <= kShapeBytesMax) return {};
    return Error{Errc::BadFile,
                 fmt::format("{}: has {} bytes, a shape at most {}; a model is given with -m", path,
                             text.size(), kShapeBytesMax)};
}

Result<ModelFile> model_of(MappedFile file) {
    const std::span<const std::byte> bytes = file.bytes();
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (Status checked = check_is_text(file.path(), text); !checked) return checked.error();
    Shape shape{file.path(), text};
    ModelParts parts;
    parts.format = "shape, its weights synthetic";
    parts.config = read_config(shape);
    const ModelConfig& config = parts.config;
    const ShapeTypes types = read_types(shape);
    if (Status checked = shape.status(); !checked) return checked.error();
    for (int l = 0; l < config.layers; ++l)
        parts.layers.push_back(layer_of(shape, config, types, l));
    parts.embedding =
        matrix_of(shape, "token_embd.weight", config.tied_embeddings ? types.more : types.most,
                  config.vocab_size, config.dim);
    parts.output_norm = vector_of("output_norm.weight", config.dim, 1.0f);
    parts.output_head = parts.embedding;
    if (!config.tied_embeddings)
        parts.output_head =
            matrix_of(shape, "output.weight", types.more, config.vocab_size, config.dim);
    if (Status checked = shape.status(); !checked) return checked.error();
    parts.tensors = list_of(parts);
    parts.data_start = bytes.size();  // all of it describes
    return ModelFile(std::make_unique<ModelFile::Contents>(
        ModelFile::Contents{std::move(file), std::move(parts)}));
}

}  // namespace

Result<ModelFile> open_random_model(const std::string& path) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    return model_of(std::move(file).value());
}

Result<ModelFile> random_model(const std::string& path, std::string_view shape) {
    Result<MappedFile> file = MappedFile::of_text(path, shape);
    if (!file) return file.error();
    return model_of(std::move(file).value());
}

bool is_synthetic(const ModelFile& file) {
    return file.embedding().data == nullptr;
}

}  // namespace paceline
