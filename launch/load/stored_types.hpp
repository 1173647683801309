// What the stored types of a model file are computed as, and how near that is to the file's
// numbers.
//
// Pure functions, but for print_rounded_types(); no weights are read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/base/device.hpp"
#include "launch/base/model_options.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/weights/model_file.hpp"
#include "model/weights/packed_type.hpp"

namespace paceline {

/// The matrices of one stored type that are packed to one type.
struct StoredUse {
    StoredType stored = StoredType::F32;
    PackedType packed = PackedType::F32;
    std::uint64_t parameters = 0;
    std::uint64_t file_bytes = 0;
    std::uint64_t memory_bytes = 0;
};

/// In the order of file; a tied head counts once, an update by a LoRA as `dtype` has it. The types
/// are those of `device`, the memory is that of a CPU's packed matrices of these types.
[[nodiscard]] std::vector<StoredUse> stored_uses(const ModelFile& file,
                                                 Dtype dtype,
                                                 const Device& device);

/// "exact", or what is rounded: "to 8 bits".
[[nodiscard]] std::string_view rounding_text(StoredType stored, PackedType packed);

/// One line for the start of a run about types whose numbers are rounded, with their memory; empty:
/// there are none. Of plain types it names those that become bfloat16: to 8 or 4 bits all of a file
/// are rounded, as `dtype` says.
[[nodiscard]] std::string rounded_types_text(const ModelFile& file,
                                             Dtype dtype,
                                             const Device& device);

/// Writes that line, for a model computed with `options`, to standard error as "paceline COMMAND:
/// ...".
void print_rounded_types(const char* command, const ModelFile& file, const ModelOptions& options);

}  // namespace paceline
