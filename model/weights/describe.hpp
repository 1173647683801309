// What a model file holds, counted: the figures after `paceline inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights/model_file.hpp"

namespace paceline {

/// The tensors of one stored type.
struct TypeSummary {
    StoredType type = StoredType::F32;
    std::uint64_t tensors = 0;
    std::uint64_t parameters = 0;
    std::uint64_t bytes = 0;  // as stored in the file
};

struct ModelSummary {
    std::string format;        // "GGUF v3"
    std::string architecture;  // "llama"
    std::string name;          // the file's own name for the model; may be empty
    std::string rope;          // "base 100000, 64 dimensions, adjacent pairs, no scaling"
    std::string tokenizer;     // "gpt2 (smollm), 49152 tokens"; "none"
    std::uint64_t file_bytes = 0;
    std::uint64_t tensors = 0;
    std::uint64_t parameters = 0;         // each stored number once: a tied head is not counted
    std::uint64_t matrix_parameters = 0;  // of these, in matrices (what a backend packs)
    std::uint64_t tensor_bytes = 0;
    std::vector<TypeSummary> types;  // those present, in the order of StoredType
};

[[nodiscard]] const char* name_of(Architecture architecture);

/// Reads no weights: all of it is known since open().
[[nodiscard]] ModelSummary summarise(const ModelFile& model);

/// The summary as lines of "field: value" for a terminal; ends with a line break.
[[nodiscard]] std::string describe(const ModelFile& model);

}  // namespace paceline
