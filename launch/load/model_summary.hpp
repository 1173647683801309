// InspectSummary: what `inspect` and `bench` say about a model file. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights/model_file.hpp"

namespace paceline {

/// Tensors that differ only in their layer number, as one line: "blk.*.attn_q.weight".
struct TensorGroup {
    std::string name;
    std::string type;  // "Q4_1"
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    int count = 0;
    std::uint64_t bytes = 0;  // of all of them
};

struct DtypeMemory {
    std::string dtype;
    std::uint64_t weight_bytes = 0;  // packed
};

struct InspectSummary {
    std::string path;
    std::uint64_t file_bytes = 0;
    std::uint64_t tensor_bytes = 0;
    std::uint64_t parameters = 0;
    std::vector<TensorGroup> groups;       // in file order of their first member
    std::vector<DtypeMemory> memory;       // one per --dtype
    std::uint64_t kv_bytes_per_token = 0;  // f16
};

enum class Grouping : std::uint8_t { ByKind, None };

[[nodiscard]] InspectSummary summarize(const ModelFile& file, Grouping grouping);

[[nodiscard]] const char* name(RopeScaling scaling);

/// "98.4 MB", "1.2 GB": decimal units, as file sizes are.
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
/// "134.5 M"
[[nodiscard]] std::string human_count(std::uint64_t count);

}  // namespace paceline
