// A packed copy of a folder's matrices in a GGUF file of this machine, used in their place.
//
//     a GGUF file as convert.hpp writes it, without keys | 8 bytes "PACEseal" | u64 checksum of all
//     bytes before the 16
//
// A ModelFile that uses a copy stays the folder: configuration, tokenizer, norms, fingerprint and
// the list of tensors are the folder's. Only layer(), embedding() and output_head() give matrices
// of the copy, which hold the numbers that one dtype makes of the folder's: packed with that dtype
// they give the same bits.
//
// The checksum finds damage by accident (a bad disk, a file cut short, another program's bytes):
// any change within one word of 8 bytes for certain, others but for one in 2^64. It reads the whole
// file, at some 10 GB/s where the file is in memory; it is no protection against files made to
// collide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"
#include "model/weights/unfinished_file.hpp"

namespace paceline {

inline constexpr std::size_t kSealBytes = 16;

/// Of a copy's bytes, without the seal.
[[nodiscard]] std::uint64_t copy_checksum(std::span<const std::byte> bytes);

/// Appends the seal to the whole GGUF file in `out`. Errors: System.
[[nodiscard]] Status seal_copy(UnfinishedFile& out);

/// `folder` with the matrices of the copy at `path`, which was made with `type` (convert.hpp).
/// Errors: BadFile: it is missing, damaged, or not a copy of this folder.
[[nodiscard]] Status use_copy(ModelFile& folder, const std::string& path, StoredType type);

}  // namespace paceline
