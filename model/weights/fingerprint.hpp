// A 64-bit fingerprint of a model: cheap, stable across machines, not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "model/weights/model_parts.hpp"

namespace paceline {

/// Mixes every byte in front of the tensor data (configuration, tokenizer, tensor names, types,
/// shapes, offsets), the size of the file, and of each tensor three samples of up to 64 bytes:
/// its begin, middle and end. Two files that differ elsewhere get the same fingerprint: it
/// guards against starting stages on different models, not against an attacker. Calls `sampled`
/// after each tensor.
[[nodiscard]] std::uint64_t fingerprint_of(std::span<const std::byte> file,
                                           const ModelParts& parts,
                                           const std::function<void(const TensorView&)>& sampled);

/// All bytes, and their number.
[[nodiscard]] std::uint64_t fingerprint_of(std::span<const std::byte> bytes);

/// One fingerprint of two, in this order.
[[nodiscard]] std::uint64_t mixed_fingerprint(std::uint64_t first, std::uint64_t second);

/// 16 lower-case hexadecimal digits: how files and messages name a fingerprint.
[[nodiscard]] std::string fingerprint_text(std::uint64_t fingerprint);

}  // namespace paceline
