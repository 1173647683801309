// What types and sides of a folder's tensors mean to a model. Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "model/config.hpp"
#include "model/weights/huggingface/architecture.hpp"
#include "model/weights/safetensors_file.hpp"
#include "model/weights/tensor.hpp"

namespace paceline::huggingface {

/// Rows or columns of a tensor in a model of this configuration.
[[nodiscard]] std::int64_t length_of(Side side, const ModelConfig& config);

/// Nothing: weights of that type are not supported.
[[nodiscard]] std::optional<StoredType> stored_type(SafetensorsType type);

}  // namespace paceline::huggingface
