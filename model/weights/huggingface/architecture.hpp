// FolderArchitecture: the description of a class of transformers, as data.
//
// One more dense architecture is one file like llama.cpp, and its line in architectures.cpp: names
// of the class, which tensors a layer has under which names, what absent keys of config.json mean,
// and a function for the keys that only this class has. Anything else would be a switch of
// ModelConfig that does not exist yet, and is refused by name.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/config.hpp"
#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::huggingface {

/// A side of a tensor, as the configuration gives it.
enum class Side { One, Width, Heads, KvHeads, FeedForward, HeadWidth };

/// Of q and k: the rows of a head are read as pairs beside each other (TensorView::head_rows).
enum class RowOrder { AsStored, PairsOfHeads };

/// A tensor that every layer has: model.layers.N.SUFFIX, which a GGUF file calls blk.N.NAME.
struct TensorRule {
    const char* suffix;
    const char* name;
    Side rows;
    Side cols;
    TensorView LayerTensors::*place = nullptr;  // one of the two
    std::optional<TensorView> LayerTensors::*optional_place = nullptr;
    RowOrder order = RowOrder::AsStored;
};

/// Rows of a matrix that holds those of several, which then go by the names of TensorRules.
struct FusedPart {
    const char* suffix = nullptr;
    Side rows = Side::One;
};
struct FusedRule {
    const char* suffix;
    std::array<FusedPart, 3> parts;  // in the order of their rows; unused ones are empty
};

struct FolderArchitecture {
    const char* class_name;  // "LlamaForCausalLM", of `architectures`
    const char* model_type;  // "llama"
    Architecture architecture;
    RopePairing pairing;
    std::array<std::span<const TensorRule>, 2> layer;  // unused ones are empty
    std::span<const TensorRule> biases = {};           // that a layer has too, with config.qkv_bias
    std::span<const FusedRule> fused = {};
    bool partial_rotary = false;    // partial_rotary_factor may be below 1
    bool yarn_is_longrope = false;  // as old files of the class called it
    bool qkv_bias = false;
    bool qk_norm = false;
    int kv_heads = 0;  // what the class takes where config.json does not say; 0: as many as heads
    int head_dim = 0;  // the same; 0: width / heads
    /// Keys that only this class has; nullptr: none.
    void (*read_more)(JsonKeys& keys, ModelConfig& config) = nullptr;
};

/// The one of `class_name`, or of `model_type` where the class is empty; nullptr: not known.
[[nodiscard]] const FolderArchitecture* find_architecture(std::string_view class_name,
                                                          std::string_view model_type);
/// "LlamaForCausalLM, MistralForCausalLM, ...", for messages.
[[nodiscard]] std::string architecture_names();

extern const FolderArchitecture kLlama;
extern const FolderArchitecture kMistral;
extern const FolderArchitecture kPhi3;
extern const FolderArchitecture kQwen2;
extern const FolderArchitecture kQwen3;

}  // namespace paceline::huggingface
