// ModelConfig: everything about a decoder-only transformer that is a number or a switch.
//
// One struct serves Llama 2/3.x, Mistral, SmolLM2, Qwen2/2.5 and Qwen3; what differs is a switch
// here, never a branch somewhere else. Filled by the weight loaders (weights/), read by all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paceline {

enum class Architecture : std::uint8_t { Llama, Qwen2, Qwen3 };  // Mistral files say "llama"

[[nodiscard]] constexpr const char* name_of(Architecture architecture) {
    switch (architecture) {
        case Architecture::Llama:
            return "llama";
        case Architecture::Qwen2:
            return "qwen2";
        case Architecture::Qwen3:
            return "qwen3";
    }
    return "unknown";
}

/// Which two dimensions of a head rotate together.
enum class RopePairing : std::uint8_t {
    Adjacent,  // (2i, 2i+1): GGUF files of the llama family, whose q and k rows are permuted
    Halves,    // (i, i + head_dim/2): qwen2, qwen3
};

enum class RopeScaling : std::uint8_t { None, Linear, Yarn, Factors };

struct RopeConfig {
    RopePairing pairing = RopePairing::Adjacent;
    RopeScaling scaling = RopeScaling::None;
    int dims = 0;  // rotated dimensions of a head (even, <= head_dim)
    float base = 10000.0f;
    float factor = 1.0f;            // Linear, Yarn: context extension
    int original_context = 0;       // Yarn: context before the extension
    float attention_factor = 0.0f;  // Yarn: scale of cos and sin; 0 = 0.1 ln(factor) + 1
    float beta_fast = 32.0f;        // Yarn
    float beta_slow = 1.0f;         // Yarn
    std::vector<float> factors;  // Factors (llama3): [dims/2], base frequencies are divided by it
};

struct ModelConfig {
    Architecture architecture = Architecture::Llama;
    std::string name;  // general.name, for printing
    int layers = 0;
    int dim = 0;  // width of the residual stream
    int heads = 0;
    int kv_heads = 0;  // heads % kv_heads == 0
    int head_dim = 0;  // explicit: need not be dim / heads
    int ffn_dim = 0;
    int vocab_size = 0;
    int context_length = 0;
    float norm_epsilon = 1e-5f;
    RopeConfig rope;
    bool qkv_bias = false;  // Qwen2
    bool qk_norm = false;   // Qwen3: RMS norm per head on q and k before rope
    bool tied_embeddings = false;

    [[nodiscard]] int sublayers() const { return 2 * layers; }  // attention, MLP, attention, ...
    [[nodiscard]] int q_dim() const { return heads * head_dim; }
    [[nodiscard]] int kv_dim() const { return kv_heads * head_dim; }
};

}  // namespace paceline
