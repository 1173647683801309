// ModelParts: the common result of all readers of weight formats; a ModelFile is these parts and a
// mapping. A draft part is one that borrows from its target (trained_parts.hpp).
//
// Filled by a format's reader (gguf/gguf_shards.hpp, huggingface/folder.hpp), which has checked all
// of it before it returns. Owns its strings and vectors; the TensorViews point into bytes owned
// elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/weights/chat_sources.hpp"
#include "model/weights/low_rank.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/model_file.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

/// The list of rope factors for texts beyond the context that a model was trained with first
/// (longrope), beside the one for texts within it, in ModelConfig::rope. ModelFile::choose_rope()
/// takes one.
struct LongRope {
    std::vector<float> factors;
    int context = 0;          // of the model with it; 0: the model has no such list
    std::string remark = {};  // what ModelParts::remarks say while the other list counts
};

struct ModelParts {
    std::string format;        // "GGUF v3", for people
    std::string architecture;  // as the file names it: "llama", "MistralForCausalLM"
    std::vector<std::string> remarks =
        {};  // what the file limits, or cannot say: sentences for people
    ModelConfig config;
    LongRope long_rope = {};
    TokenizerData tokenizer;
    ChatSources chat = {};
    SamplingDefaults sampling;
    std::vector<TensorView> tensors;  // all, in file order
    std::vector<LayerTensors> layers;
    TensorView embedding;
    TensorView output_norm;
    TensorView output_head;                        // the embedding if tied
    std::uint64_t data_start = 0;                  // bytes of the file in front of the tensor data
    std::vector<std::uint64_t> shard_starts = {};  // the same of the further files of a split model
};

/// What merge_lora() adds to a target (lora.hpp).
struct LoraMerge {
    MergedLora card;
    std::vector<LowRank> updates;  // TensorView::added points here; never resized once it does
    std::uint64_t content = 0;     // of all numbers of the LoRA
};

struct ModelFile::Contents {
    MappedFile file;
    ModelParts parts;
    const Contents* lender = nullptr;  // whose embedding, head and tokenizer these are; outlives it
    std::optional<LoraMerge> merge = {};
    // The further files of a split model; of a folder all that tensors lie in, where `file` says
    // what it is.
    std::vector<MappedFile> shards = {};
    std::optional<MappedFile> copy =
        {};  // of a folder: where its matrices are read from (packed_copy.hpp)
};

}  // namespace paceline
