#include "model/weights/random_model.hpp"

#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/weights/mapped_file.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {
namespace {

constexpr int kVectorMax = 1 << 17;

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
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find('\n', begin), text.size());
            const std::string_view all = text.substr(begin, end - begin);
            const std::string_view line = trimmed(all.substr(0, all.find('#')));
            begin = end + 1;
            if (line.empty()) continue;
            const std::size_t equals = line.find('=');
            if (equals == std::string_view::npos) {
                fail("'" + std::string{line} + "' is not of the form key = value");
                continue;
            }
            values_[std::string{trimmed(line.substr(0, equals))}] =
                std::string{trimmed(line.substr(equals + 1))};
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
            fail(std::string{key} + " = " + value + ", must be true or false");
        return value == "true";
    }
    std::string text(const char* key, std::string otherwise) {
        std::optional<std::string> value = take(key);
        if (!value) return otherwise;
        if (value->size() < 2 || value->front() != '"' || value->back() != '"') {
            fail(std::string{key} + " = " + *value + ", must be a text in quotation marks");
            return otherwise;
        }
        return value->substr(1, value->size() - 2);
    }
    void fail(const std::string& what) {
        if (wrong_.empty()) wrong_ = path_ + ": " + what;
    }
    [[nodiscard]] Status status() const {
        if (!wrong_.empty()) return Error{Errc::BadFile, wrong_};
        if (values_.empty()) return {};
        return Error{Errc::BadFile,
                     path_ + ": " + values_.begin()->first + " is not a key of a shape"};
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
        fail(std::string{key} + " = " + *text + ", must be a number from " + std::to_string(low) +
             " to " + std::to_string(high));
        return low;
    }

    std::string path_;
    std::map<std::string, std::string> values_;
    std::string wrong_;
};

StoredType read_type(Shape& shape) {
    const std::string wanted = shape.text("type", "bf16");
    const std::pair<const char*, StoredType> known[] = {
        {"f32", StoredType::F32},   {"f16", StoredType::F16},   {"bf16", StoredType::BF16},
        {"q8_0", StoredType::Q8_0}, {"q4_0", StoredType::Q4_0}, {"q4_1", StoredType::Q4_1}};
    for (const auto& [word, type] : known) {
        if (wanted == word) return type;
    }
    shape.fail("type = \"" + wanted + "\", possible are f32, f16, bf16, q8_0, q4_0 and q4_1");
    return StoredType::BF16;
}

ModelConfig read_config(Shape& shape) {
    ModelConfig config;
    config.name = shape.text("name", "random");
    config.layers = shape.number("layers", 1, 1024);
    config.dim = shape.number("dim", 32, kVectorMax);
    config.heads = shape.number("heads", 1, 1024);
    config.kv_heads = shape.number("kv_heads", 1, 1024, config.heads);
    config.head_dim = shape.number("head_dim", 2, 1024, config.dim / config.heads);
    config.ffn_dim = shape.number("ffn_dim", 32, 1 << 20);
    config.vocab_size = shape.number("vocab_size", 1, 1 << 20);
    config.context_length = shape.number("context_length", 1, 1 << 24, 8192);
    config.norm_epsilon = shape.real("norm_epsilon", 0.0f, 1.0f, 1e-5f);
    config.qkv_bias = shape.flag("qkv_bias");
    config.qk_norm = shape.flag("qk_norm");
    config.tied_embeddings = shape.flag("tied_embeddings");
    config.rope.base = shape.real("rope_base", 1.0f, 1e9f, 10000.0f);
    config.rope.dims = config.head_dim;
    if (config.heads % config.kv_heads != 0) shape.fail("heads must be a multiple of kv_heads");
    if (config.head_dim % 2 != 0) shape.fail("head_dim must be even");
    if (config.q_dim() > kVectorMax) shape.fail("heads times head_dim is too large");
    return config;
}

TensorView vector_of(const char* name, int size, float value) {
    TensorView tensor{name, StoredType::F32, 1, size};
    tensor.data = reinterpret_cast<const std::byte*>(constant(value));
    tensor.bytes = static_cast<std::size_t>(size) * sizeof(float);
    return tensor;
}

/// A matrix without bytes.
TensorView matrix_of(Shape& shape, const char* name, StoredType type, int rows, int cols) {
    const TypeTraits of = traits(type);
    TensorView tensor{name, type, rows, cols};
    if (static_cast<std::uint32_t>(cols) % of.block_elements != 0)
        shape.fail(std::string{name} + " has " + std::to_string(cols) + " columns, for " + of.name +
                   " a multiple of " + std::to_string(of.block_elements) + " is needed");
    tensor.bytes = static_cast<std::size_t>(rows) *
                   (static_cast<std::size_t>(cols) / of.block_elements) * of.block_bytes;
    return tensor;
}

LayerTensors layer_of(Shape& shape, const ModelConfig& config, StoredType type) {
    LayerTensors layer;
    layer.attn_norm = vector_of("attn_norm", config.dim, 1.0f);
    layer.q = matrix_of(shape, "q", type, config.q_dim(), config.dim);
    layer.k = matrix_of(shape, "k", type, config.kv_dim(), config.dim);
    layer.v = matrix_of(shape, "v", type, config.kv_dim(), config.dim);
    layer.attn_out = matrix_of(shape, "attn_out", type, config.dim, config.q_dim());
    layer.ffn_norm = vector_of("ffn_norm", config.dim, 1.0f);
    layer.gate = matrix_of(shape, "gate", type, config.ffn_dim, config.dim);
    layer.up = matrix_of(shape, "up", type, config.ffn_dim, config.dim);
    layer.down = matrix_of(shape, "down", type, config.dim, config.ffn_dim);
    if (config.qkv_bias) {
        layer.q_bias = vector_of("q_bias", config.q_dim(), 0.0f);
        layer.k_bias = vector_of("k_bias", config.kv_dim(), 0.0f);
        layer.v_bias = vector_of("v_bias", config.kv_dim(), 0.0f);
    }
    if (config.qk_norm) {
        layer.q_norm = vector_of("q_norm", config.head_dim, 1.0f);
        layer.k_norm = vector_of("k_norm", config.head_dim, 1.0f);
    }
    return layer;
}

}  // namespace

Result<ModelFile> open_random_model(const std::string& path) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    const std::span<const std::byte> bytes = file.value().bytes();
    Shape shape{path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    ModelParts parts;
    parts.format = "shape with random weights";
    parts.config = read_config(shape);
    const ModelConfig& config = parts.config;
    const StoredType type = read_type(shape);
    if (Status checked = shape.status(); !checked) return checked.error();
    parts.layers.assign(static_cast<std::size_t>(config.layers), layer_of(shape, config, type));
    parts.embedding = matrix_of(shape, "embedding", type, config.vocab_size, config.dim);
    parts.output_norm = vector_of("output_norm", config.dim, 1.0f);
    parts.output_head = parts.embedding;
    if (!config.tied_embeddings)
        parts.output_head = matrix_of(shape, "output_head", type, config.vocab_size, config.dim);
    if (Status checked = shape.status(); !checked) return checked.error();
    parts.data_start = bytes.size();  // all of it describes; `tensors` stays empty: nothing to read
    return ModelFile(std::make_unique<ModelFile::Contents>(
        ModelFile::Contents{std::move(file).value(), std::move(parts)}));
}

}  // namespace paceline
