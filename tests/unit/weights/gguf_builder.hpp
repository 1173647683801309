// GgufBuilder: writes GGUF bytes for tests, valid ones and hostile ones.
//
// Every field can be claimed to be something else than it is: that is what a hostile file does.
// tiny_model() gives a complete, valid model of a few KB to start from; change one thing of it
// and see what the loader says. Deterministic: equal options give equal bytes everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/weights/tensor.hpp"

namespace paceline::test {

using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes& out, T value) {
    std::array<std::byte, sizeof(T)> raw{};
    std::memcpy(raw.data(), &value, sizeof value);
    out.insert(out.end(), raw.begin(), raw.end());
}

inline void append_raw(Bytes& out, std::string_view text) {
    for (const char c : text) out.push_back(static_cast<std::byte>(c));
}

/// A GGUF string: its length, then its bytes.
inline void append_text(Bytes& out, std::string_view text) {
    append<std::uint64_t>(out, text.size());
    append_raw(out, text);
}

struct BuiltKey {
    std::string name;
    std::uint32_t type = 0;  // number in the file
    Bytes value;
};

struct BuiltTensor {
    std::string name;
    std::vector<std::uint64_t> dims;  // contiguous one first
    std::uint32_t ggml_type = 0;
    Bytes data;
    std::optional<std::uint64_t> claimed_offset;  // instead of the real one
    std::optional<std::uint32_t> claimed_dim_count;
    std::optional<std::uint64_t> claimed_name_length;
};

class GgufBuilder {
public:
    std::uint32_t magic = 0x46554747;  // "GGUF"
    std::uint32_t version = 3;
    std::uint64_t alignment = 32;  // of the layout; set the key too to make it known
    std::optional<std::uint64_t> claimed_tensors;
    std::optional<std::uint64_t> claimed_keys;
    std::vector<BuiltKey> keys;
    std::vector<BuiltTensor> tensors;

    /// Sets the key to a value of any type number; an existing key is replaced in its place.
    void set(const std::string& name, std::uint32_t type, Bytes value) {
        for (BuiltKey& key : keys) {
            if (key.name != name) continue;
            key = {name, type, std::move(value)};
            return;
        }
        keys.push_back({name, type, std::move(value)});
    }
    void set_u32(const std::string& name, std::uint32_t value) { set_number(name, 4, value); }
    void set_i32(const std::string& name, std::int32_t value) { set_number(name, 5, value); }
    void set_f32(const std::string& name, float value) { set_number(name, 6, value); }
    void set_u64(const std::string& name, std::uint64_t value) { set_number(name, 10, value); }
    void set_f64(const std::string& name, double value) { set_number(name, 12, value); }
    void set_bool(const std::string& name, bool value) {
        set_number<std::uint8_t>(name, 7, value ? 1 : 0);
    }
    void set_text(const std::string& name, std::string_view value) {
        Bytes raw;
        append_text(raw, value);
        set(name, 8, std::move(raw));
    }
    void set_texts(const std::string& name, const std::vector<std::string>& values) {
        Bytes raw;
        append<std::uint32_t>(raw, 8);
        append<std::uint64_t>(raw, values.size());
        for (const std::string& value : values) append_text(raw, value);
        set(name, 9, std::move(raw));
    }
    void set_floats(const std::string& name, const std::vector<float>& values) {
        Bytes raw;
        append(raw, std::uint32_t{6});
        append(raw, static_cast<std::uint64_t>(values.size()));
        for (const float value : values) append(raw, value);
        set(name, 9, std::move(raw));
    }
    void set_ints(const std::string& name, const std::vector<std::int32_t>& values) {
        Bytes raw;
        append<std::uint32_t>(raw, 5);
        append<std::uint64_t>(raw, values.size());
        for (const std::int32_t value : values) append(raw, value);
        set(name, 9, std::move(raw));
    }
    void remove_key(const std::string& name) {
        std::erase_if(keys, [&](const BuiltKey& key) { return key.name == name; });
    }
    void remove_tensor(const std::string& name) {
        std::erase_if(tensors, [&](const BuiltTensor& tensor) { return tensor.name == name; });
    }
    [[nodiscard]] BuiltTensor& tensor(const std::string& name) {
        return *std::find_if(tensors.begin(), tensors.end(),
                             [&](const BuiltTensor& t) { return t.name == name; });
    }
    void add_f32_tensor(const std::string& name,
                        const std::vector<std::uint64_t>& dims,
                        const std::vector<float>& values) {
        BuiltTensor built{.name = name,
                          .dims = dims,
                          .ggml_type = 0,
                          .data = {},
                          .claimed_offset = {},
                          .claimed_dim_count = {},
                          .claimed_name_length = {}};
        for (const float value : values) append(built.data, value);
        tensors.push_back(std::move(built));
    }

    /// Replaces the matrices `parts` of each block by one with the rows of all, `fused`.
    void fuse(const std::vector<std::string>& parts, const std::string& fused) {
        for (int block = 0;; ++block) {
            const std::string prefix = "blk." + std::to_string(block) + ".";
            const auto place = std::find_if(
                tensors.begin(), tensors.end(),
                [&](const BuiltTensor& t) { return t.name == prefix + parts[0] + ".weight"; });
            if (place == tensors.end()) return;
            BuiltTensor whole = *place;
            whole.name = prefix + fused + ".weight";
            for (std::size_t i = 1; i < parts.size(); ++i) {
                const BuiltTensor& part = tensor(prefix + parts[i] + ".weight");
                whole.dims[1] += part.dims[1];
                whole.data.insert(whole.data.end(), part.data.begin(), part.data.end());
            }
            for (const std::string& part : parts) remove_tensor(prefix + part + ".weight");
            tensors.push_back(std::move(whole));
        }
    }

    /// The file. The last tensor is not padded, so every byte of it counts.
    [[nodiscard]] Bytes bytes() const {
        Bytes out;
        append(out, magic);
        append(out, version);
        append<std::uint64_t>(out, claimed_tensors.value_or(tensors.size()));
        append<std::uint64_t>(out, claimed_keys.value_or(keys.size()));
        for (const BuiltKey& key : keys) {
            append_text(out, key.name);
            append(out, key.type);
            out.insert(out.end(), key.value.begin(), key.value.end());
        }
        std::uint64_t offset = 0;
        for (const BuiltTensor& tensor : tensors) {
            append_info(out, tensor, offset);
            offset = padded(offset + tensor.data.size());
        }
        for (const BuiltTensor& tensor : tensors) {
            out.resize(padded(out.size()));
            out.insert(out.end(), tensor.data.begin(), tensor.data.end());
        }
        return out;
    }

private:
    template <class T>
    void set_number(const std::string& name, std::uint32_t type, T value) {
        Bytes raw;
        append(raw, value);
        set(name, type, std::move(raw));
    }
    static void append_info(Bytes& out, const BuiltTensor& tensor, std::uint64_t offset) {
        append<std::uint64_t>(out, tensor.claimed_name_length.value_or(tensor.name.size()));
        append_raw(out, tensor.name);
        append(out,
               tensor.claimed_dim_count.value_or(static_cast<std::uint32_t>(tensor.dims.size())));
        for (const std::uint64_t dim : tensor.dims) append(out, dim);
        append(out, tensor.ggml_type);
        append(out, tensor.claimed_offset.value_or(offset));
    }
    [[nodiscard]] std::uint64_t padded(std::uint64_t size) const {
        return (size + alignment - 1) / alignment * alignment;
    }
};

/// Writes the bytes to `path`, replacing what was there.
inline void write_file(const std::string& path, const Bytes& bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
}

struct TinyModel {
    std::string architecture = "llama";
    int layers = 2;
    int dim = 64;
    int heads = 4;
    int kv_heads = 2;
    int head_dim = 16;  // written as a key if it is not dim / heads, or for qwen3
    int ffn_dim = 96;
    int vocab_size = 288;  // from 259 on it has all bytes and three control tokens
    int context_length = 256;
    StoredType matrices = StoredType::F32;  // block types need widths that are multiples of 32
    StoredType embedding = StoredType::F32;
    bool tied = true;
    bool qkv_bias = false;  // qwen2 always has it
    bool rope_factors = false;
    bool tokenizer = true;
    std::uint64_t seed = 1;
};

namespace detail {

/// Knuth's 64-bit linear congruential generator, upper half.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_{seed} {}
    std::uint32_t bits() {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::uint32_t>(state_ >> 32U);
    }
    float between(float low, float high) {
        return low + (high - low) * (static_cast<float>(bits() >> 8U) * 0x1p-24F);
    }

private:
    std::uint64_t state_;
};

inline std::uint32_t ggml_number(StoredType type) {
    constexpr std::uint32_t kNumbers[] = {0, 1, 30, 8, 2, 3, 6, 7, 10, 11, 12, 13, 14, 20, 23, 39};
    return kNumbers[static_cast<std::size_t>(type)];
}

/// Where a block has its float16 scales; the rest of it may have any bits.
struct HalfPlaces {
    int scale = -1;    // of a float16 d
    int minimum = -1;  // of a float16 m or dmin
    float steps = 1;   // about max |number| / d
};
inline HalfPlaces half_places(StoredType type) {
    switch (type) {
        case StoredType::F32:
        case StoredType::F16:
        case StoredType::BF16:
            return {};
        case StoredType::Q8_0:
            return {0, -1, 127};
        case StoredType::Q4_0:
            return {0, -1, 8};
        case StoredType::Q4_1:
            return {0, 2, 7.5F};
        case StoredType::Q5_0:
            return {0, -1, 16};
        case StoredType::Q5_1:
            return {0, 2, 15.5F};
        case StoredType::Q2_K:
            return {80, 82, 45};
        case StoredType::Q3_K:
            return {108, -1, 128};
        case StoredType::Q4_K:
            return {0, 2, 945};
        case StoredType::Q5_K:
            return {0, 2, 1953};
        case StoredType::Q6_K:
            return {208, -1, 4096};
        case StoredType::IQ4_NL:
            return {0, -1, 127};
        case StoredType::IQ4_XS:
            return {0, -1, 4064};
        case StoredType::MXFP4:
            return {};
    }
    return {};
}

/// `count` random numbers of about +-`size`, in the stored type's own form.
inline Bytes random_data(StoredType type, std::int64_t count, float size, Random& random) {
    Bytes out;
    const TypeTraits shape = traits(type);
    for (std::int64_t i = 0; i < count; i += shape.block_elements) {
        const float value = random.between(-size, size);
        if (type == StoredType::F32) append(out, value);
        if (type == StoredType::F16) append(out, float_to_half(value));
        if (type == StoredType::BF16) append(out, float_to_bfloat(value));
        if (shape.block_elements == 1) continue;
        // Q4_1 and Q5_1 add their minimum, K types subtract an integer times theirs.
        const HalfPlaces places = half_places(type);
        const std::uint16_t scale = float_to_half(size / places.steps);
        const std::uint16_t minimum =
            float_to_half(shape.block_elements == 32 ? -size : size / 30.0F);
        for (int at = 0; at < static_cast<int>(shape.block_bytes); ++at) {
            if (at == places.scale || at == places.minimum) {
                append(out, at == places.scale ? scale : minimum);
                ++at;
            } else if (at == 0 && type == StoredType::MXFP4) {
                out.push_back(static_cast<std::byte>(127 + std::ilogb(size / 6.0F)));
            } else {
                out.push_back(static_cast<std::byte>(random.bits() & 0xFFU));
            }
        }
    }
    return out;
}

/// The printable form of a byte in byte-level BPE vocabularies (GPT-2's table), as UTF-8.
inline std::string byte_letter(int byte) {
    const auto stands_for_itself = [](int b) {
        return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    };
    int point = byte;
    if (!stands_for_itself(byte)) {
        point = 0x100;
        for (int b = 0; b < byte; ++b) point += stands_for_itself(b) ? 0 : 1;
    }
    if (point < 0x80) return {static_cast<char>(point)};
    return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

}  // namespace detail

inline void add_tiny_tokenizer(GgufBuilder& builder, int vocab_size) {
    std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    std::vector<std::int32_t> kinds = {3, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
        tokens.push_back(detail::byte_letter(byte));
        kinds.push_back(1);
    }
    while (static_cast<int>(tokens.size()) < vocab_size) {
        tokens.push_back("<unused" + std::to_string(tokens.size()) + ">");
        kinds.push_back(5);
    }
    tokens.resize(static_cast<std::size_t>(vocab_size));
    kinds.resize(static_cast<std::size_t>(vocab_size));
    builder.set_text("tokenizer.ggml.model", "gpt2");
    builder.set_text("tokenizer.ggml.pre", "smollm");
    builder.set_texts("tokenizer.ggml.tokens", tokens);
    builder.set_ints("tokenizer.ggml.token_type", kinds);
    builder.set_texts("tokenizer.ggml.merges", {});
    builder.set_u32("tokenizer.ggml.bos_token_id", 1);
    builder.set_u32("tokenizer.ggml.eos_token_id", 2);
    builder.set_bool("tokenizer.ggml.add_bos_token", false);
}

/// A complete model that the loader accepts, with random weights.
inline GgufBuilder tiny_model(const TinyModel& tiny = {}) {
    GgufBuilder builder;
    detail::Random random(tiny.seed);
    const std::string arch = tiny.architecture;
    const auto u32 = [](int value) { return static_cast<std::uint32_t>(value); };
    builder.set_text("general.architecture", arch);
    builder.set_text("general.name", "tiny");
    builder.set_u32(arch + ".block_count", u32(tiny.layers));
    builder.set_u32(arch + ".context_length", u32(tiny.context_length));
    builder.set_u32(arch + ".embedding_length", u32(tiny.dim));
    builder.set_u32(arch + ".feed_forward_length", u32(tiny.ffn_dim));
    builder.set_u32(arch + ".attention.head_count", u32(tiny.heads));
    builder.set_u32(arch + ".attention.head_count_kv", u32(tiny.kv_heads));
    builder.set_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
    builder.set_f32(arch + ".rope.freq_base", 10000.0F);
    builder.set_u32(arch + ".rope.dimension_count", u32(tiny.head_dim));
    if (tiny.head_dim * tiny.heads != tiny.dim || arch == "qwen3") {
        builder.set_u32(arch + ".attention.key_length", u32(tiny.head_dim));
        builder.set_u32(arch + ".attention.value_length", u32(tiny.head_dim));
    }
    if (tiny.tokenizer) add_tiny_tokenizer(builder, tiny.vocab_size);

    const auto matrix = [&](const std::string& name, int rows, int cols, StoredType type) {
        builder.tensors.push_back(
            {.name = name,
             .dims = {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)},
             .ggml_type = detail::ggml_number(type),
             .data = detail::random_data(type, std::int64_t{rows} * cols, 0.3F, random),
             .claimed_offset = {},
             .claimed_dim_count = {},
             .claimed_name_length = {}});
    };
    const auto vector = [&](const std::string& name, int count, float low, float high) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values) value = random.between(low, high);
        builder.add_f32_tensor(name, {static_cast<std::uint64_t>(count)}, values);
    };
    matrix("token_embd.weight", tiny.vocab_size, tiny.dim, tiny.embedding);
    if (tiny.rope_factors) vector("rope_freqs.weight", tiny.head_dim / 2, 1.0F, 8.0F);
    const int q_dim = tiny.heads * tiny.head_dim;
    const int kv_dim = tiny.kv_heads * tiny.head_dim;
    for (int i = 0; i < tiny.layers; ++i) {
        const std::string block = "blk." + std::to_string(i) + ".";
        vector(block + "attn_norm.weight", tiny.dim, 0.5F, 1.5F);
        matrix(block + "attn_q.weight", q_dim, tiny.dim, tiny.matrices);
        matrix(block + "attn_k.weight", kv_dim, tiny.dim, tiny.matrices);
        matrix(block + "attn_v.weight", kv_dim, tiny.dim, tiny.matrices);
        if (tiny.qkv_bias || arch == "qwen2") {
            vector(block + "attn_q.bias", q_dim, -0.1F, 0.1F);
            vector(block + "attn_k.bias", kv_dim, -0.1F, 0.1F);
            vector(block + "attn_v.bias", kv_dim, -0.1F, 0.1F);
        }
        if (arch == "qwen3") {
            vector(block + "attn_q_norm.weight", tiny.head_dim, 0.5F, 1.5F);
            vector(block + "attn_k_norm.weight", tiny.head_dim, 0.5F, 1.5F);
        }
        matrix(block + "attn_output.weight", tiny.dim, q_dim, tiny.matrices);
        vector(block + "ffn_norm.weight", tiny.dim, 0.5F, 1.5F);
        matrix(block + "ffn_gate.weight", tiny.ffn_dim, tiny.dim, tiny.matrices);
        matrix(block + "ffn_up.weight", tiny.ffn_dim, tiny.dim, tiny.matrices);
        matrix(block + "ffn_down.weight", tiny.dim, tiny.ffn_dim, tiny.matrices);
    }
    vector("output_norm.weight", tiny.dim, 0.5F, 1.5F);
    if (!tiny.tied) matrix("output.weight", tiny.vocab_size, tiny.dim, tiny.matrices);
    return builder;
}

/// One layer of width 8 without quantised tensors: about 3 KB, for tests that try every byte.
inline TinyModel smallest_model() {
    TinyModel tiny;
    tiny.layers = 1;
    tiny.dim = 8;
    tiny.heads = 2;
    tiny.kv_heads = 1;
    tiny.head_dim = 4;
    tiny.ffn_dim = 8;
    tiny.vocab_size = 12;
    tiny.context_length = 32;
    return tiny;
}

}  // namespace paceline::test
