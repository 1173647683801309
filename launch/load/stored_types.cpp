#include "launch/load/stored_types.hpp"

#include <cstdio>
#include <fmt/core.h>

#include "launch/load/model_summary.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/weights/gguf/gguf_groups.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

std::vector<StoredUse> stored_uses(const ModelFile& file, Dtype dtype, const Device& device) {
    const bool floats = all_floats(file, dtype);
    std::vector<StoredUse> uses;
    for (const TensorView& tensor : file.tensors()) {
        if (tensor.rows == 1) continue;
        const bool vocabulary =
            tensor.name == file.embedding().name || tensor.name == file.output_head().name;
        const MatrixUse part = vocabulary ? MatrixUse::Vocabulary : MatrixUse::Layer;
        const PackedType on_cpu = packed_type(tensor, dtype, part);
        const PackedType packed = device.gpu ? gpu_type(on_cpu, floats) : on_cpu;
        StoredUse* use = nullptr;
        for (StoredUse& known : uses) {
            if (known.stored == tensor.type && known.packed == packed) use = &known;
        }
        if (use == nullptr) use = &uses.emplace_back(StoredUse{tensor.type, packed, 0, 0, 0});
        const PackedMatrix matrix{packed, static_cast<int>(tensor.rows),
                                  static_cast<int>(tensor.cols), nullptr};
        use->parameters += static_cast<std::uint64_t>(tensor.rows * tensor.cols);
        use->file_bytes += tensor.bytes;
        use->memory_bytes += matrix.bytes();
    }
    return uses;
}

std::string_view rounding_text(StoredType stored, PackedType packed) {
    if (packed == PackedType::BF16) return stored == StoredType::BF16 ? "exact" : "to bfloat16";
    if (packed == PackedType::Int8) return has_int8_form(stored) ? "exact" : "to 8 bits";
    if (packed != PackedType::Q4 && packed != PackedType::Q4Sym) return "exact";
    return stored == stored_type(packed) ? "exact" : "to 4 bits";
}

std::string rounded_types_text(const ModelFile& file, Dtype dtype, const Device& device) {
    std::string text;
    for (const StoredUse& use : stored_uses(file, dtype, device)) {
        const std::string_view rounding = rounding_text(use.stored, use.packed);
        const bool plain = traits(use.stored).block_elements == 1;
        if (rounding == "exact" || (plain && use.packed != PackedType::BF16)) continue;
        text += fmt::format("{}{} is computed as {} ({}), {} in the file, {} in memory",
                            text.empty() ? "" : ", ", traits(use.stored).name, name(use.packed),
                            rounding, human_bytes(use.file_bytes), human_bytes(use.memory_bytes));
    }
    return text;
}

void print_rounded_types(const char* command, const ModelFile& file, const ModelOptions& options) {
    const Dtype dtype = parse_dtype(options.dtype).value_or(Dtype::Auto);
    const std::string rounded = rounded_types_text(file, dtype, device_of(options));
    if (rounded.empty()) return;
    const std::string line = visible(file.path() + ": " + rounded, kLineShownBytesMax);
    std::fprintf(stderr, "paceline %s: %s\n", command, line.c_str());
}

}  // namespace paceline
