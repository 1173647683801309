#include "launch/load/model_summary.hpp"

#include <array>
#include <cctype>
#include <cstdio>

#include "launch/base/model_options.hpp"
#include "model/cpu/cpu_options.hpp"

namespace paceline {

namespace {

/// "blk.17.ffn_up.weight" -> "blk.*.ffn_up.weight"
std::string kind_of(const std::string& tensor) {
    const std::size_t begin = tensor.find("blk.");
    if (begin != 0) return tensor;
    std::size_t end = 4;
    while (end < tensor.size() && std::isdigit(static_cast<unsigned char>(tensor[end])) != 0) ++end;
    return end == 4 ? tensor : "blk.*" + tensor.substr(end);
}

std::string scaled(double value, const char* unit, const std::array<const char*, 4>& prefixes) {
    std::size_t step = 0;
    while (value >= 999.95 && step + 1 < prefixes.size()) {
        value /= 1000.0;
        ++step;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), step == 0 ? "%.0f %s%s" : "%.1f %s%s", value,
                  prefixes[step], unit);
    return text.data();
}

}  // namespace

const char* name(RopeScaling scaling) {
    switch (scaling) {
        case RopeScaling::None:
            return "none";
        case RopeScaling::Linear:
            return "linear";
        case RopeScaling::Yarn:
            return "yarn";
        case RopeScaling::Factors:
            return "a factor for each frequency (llama3, longrope)";
    }
    return "?";
}

std::string human_bytes(std::uint64_t bytes) {
    return scaled(static_cast<double>(bytes), "B", {"", "k", "M", "G"});
}

std::string human_count(std::uint64_t count) {
    std::string text = scaled(static_cast<double>(count), "", {"", "k", "M", "G"});
    if (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

InspectSummary summarize(const ModelFile& file, Grouping grouping) {
    InspectSummary summary;
    summary.path = file.path();
    summary.file_bytes = file.file_bytes();
    for (const TensorView& tensor : file.tensors()) {
        summary.tensor_bytes += tensor.bytes;
        summary.parameters += static_cast<std::uint64_t>(tensor.rows * tensor.cols);
        const std::string kind = grouping == Grouping::ByKind ? kind_of(tensor.name) : tensor.name;
        const std::string type = traits(tensor.type).name;
        TensorGroup* found = nullptr;
        for (TensorGroup& group : summary.groups) {
            const bool same = group.name == kind && group.type == type &&
                              group.rows == tensor.rows && group.cols == tensor.cols;
            if (same) found = &group;
        }
        if (found == nullptr) {
            found = &summary.groups.emplace_back(
                TensorGroup{kind, type, tensor.rows, tensor.cols, 0, 0});
        }
        ++found->count;
        found->bytes += tensor.bytes;
    }
    const ModelConfig& config = file.config();
    for (const std::string& word : dtype_names()) {
        const Dtype dtype = parse_dtype(word).value_or(Dtype::Auto);
        summary.memory.push_back({word, packed_bytes(file, dtype, 0, config.layers)});
    }
    summary.kv_bytes_per_token =
        kv_bytes_per_slot(config, KvType::F16) * static_cast<std::uint64_t>(config.layers);
    return summary;
}

}  // namespace paceline
