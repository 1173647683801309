// A model without weights: the shape alone. The backend that loads it makes the numbers.
//
// For benches: the time of a pass follows from shapes and types, not from numbers. A shape is a
// small text file of lines `key = value` ('#' begins a comment; configs/shapes has some):
//
//     name = "llama-8b"        layers, dim, heads, kv_heads, ffn_dim, vocab_size: whole numbers
//     head_dim                 dim / heads if it is not there
//     context_length           8192
//     tied_embeddings, qkv_bias, qk_norm    false
//     rope_base, norm_epsilon  10000.0, 1e-5
//     type = "bf16"            of the matrices: f32, f16, bf16, q8_0, q4_0 or q4_1
//
// The ModelFile maps that text, so path and fingerprint are the shape's. Its matrices have names,
// but no bytes (TensorView::data is nullptr): a backend that is given a seed (CpuOptions::random,
// CudaOptions::random) makes them up while it loads, one that is not refuses. Norms are ones,
// biases zeros. There is no tokenizer.
#pragma once

#include <string>
#include <string_view>

#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Errors: BadFile naming the file, the key and its value; also for a model, before it is read.
[[nodiscard]] Result<ModelFile> open_random_model(const std::string& path);

/// The same of a shape that is no file; `path` is its name.
[[nodiscard]] Result<ModelFile> random_model(const std::string& path, std::string_view shape);

/// Whether the weights of `file` are synthetic.
[[nodiscard]] bool is_synthetic(const ModelFile& file);

}  // namespace paceline
