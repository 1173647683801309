// Writes a model as one packed GGUF file: what `paceline convert` and the cache of packed weights
// are made of.
//
// The source is a Hugging Face folder, or a GGUF file in F32, F16 or BF16 (also split). What a
// tensor becomes:
//
//     norms, biases, rope factors (one row)                  F32
//     rows that are no whole number of blocks of 32          as the source has them
//     embedding and head, with Q4_0 and Q4_1                 Q8_0: as under --dtype q4
//     every other matrix                                     the wanted type
//
// A tied head is not written: the embedding serves it. Rows of q and k of the llama classes are in
// GGUF's order, and matrices of Phi-3 fused as there, both but for weights_only.
// Of a folder the keys are made anew (gguf/gguf_model_keys.hpp), of a GGUF file they are kept, but
// for those that are about the file itself. The same source gives the same bytes.
//
// Q8_0, Q4_1 and BF16 hold the numbers that --dtype int8, q4 and bf16 make of the source, so the
// packed weights of both are the same bits, where both are read with that dtype; auto gives them
// too, unless a row is no whole number of blocks.
//
// Memory: a piece of a tensor, some 8 MB a thread; pages of the source are released tensor by
// tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/gguf/gguf_writer.hpp"
#include "model/weights/model_file.hpp"
#include "model/weights/unfinished_file.hpp"

namespace paceline {

struct ConvertOptions {
    StoredType type = StoredType::Q8_0;  // BF16, Q8_0, Q4_0 or Q4_1
    int threads = 1;
    std::string name = {};      // general.name of a folder; empty: the folder's
    bool weights_only = false;  // no keys but those about the file: for packed_copy.hpp
    std::function<void(double)> progress{};  // called on the caller's thread with 0 .. 1
    std::function<bool()> stopped{};         // asked now and then; true ends it with Cancelled
};

/// A tensor of the file and where its numbers come from.
struct ConvertedTensor {
    GgufTensorHead head;
    TensorView source;
    bool own = false;  // the source is the plan's, not the model's
};

/// The file as it will be, without a byte of the weights read.
struct ConvertPlan {
    std::vector<std::byte> head;
    std::vector<ConvertedTensor> tensors;
    std::uint64_t bytes = 0;                       // of the whole file
    std::vector<std::vector<float>> rope_factors;  // of a folder: what their tensors point to

    ConvertPlan() = default;
    ConvertPlan(ConvertPlan&&) = default;  // vectors keep their place
    ConvertPlan& operator=(ConvertPlan&&) = default;
};

/// What `tensor` becomes with `wanted`. `vocabulary`: it is the embedding or the head.
[[nodiscard]] StoredType converted_type(const TensorView& tensor,
                                        bool vocabulary,
                                        StoredType wanted);

/// Precondition: no LoRA is merged, the model has bytes, choose_rope() was not called. Errors:
/// Unsupported: a matrix that is packed already, by name; unless weights_only, those of
/// join_fused(), the tokenizer's refusal and what else add_tokenizer_keys() refuses.
[[nodiscard]] Result<ConvertPlan> plan_conversion(const ModelFile& model,
                                                  const ConvertOptions& options);

/// Appends the file of `plan`. Errors: System: those of UnfinishedFile; BadFile: a number that is
/// not finite, by tensor and row; the source changed; Cancelled.
[[nodiscard]] Status write_converted(const ModelFile& model,
                                     const ConvertPlan& plan,
                                     const ConvertOptions& options,
                                     UnfinishedFile& out);

}  // namespace paceline
