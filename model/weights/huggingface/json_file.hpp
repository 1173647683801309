// A JSON file of a model folder, read completely and checked before it is used.
//
// The result is UTF-8, nested at most kJsonDepthMax deep, and no object has a key twice (a
// parser would silently keep one of the two). The size is checked before the file is read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/result.hpp"

namespace paceline::huggingface {

inline constexpr std::size_t kJsonDepthMax = 32;
/// Of config.json, generation_config.json and tokenizer_config.json, which hold lists of tokens at
/// most.
inline constexpr std::size_t kSmallJsonBytesMax = std::size_t{16} << 20U;
/// Of tokenizer.json and the index; the largest of known models has 34 MB.
inline constexpr std::size_t kLargeJsonBytesMax = std::size_t{128} << 20U;

/// The bytes of a file, or nothing if there is none of that name. Errors: BadFile.
[[nodiscard]] Result<std::optional<std::string>> read_text_file(const std::string& path,
                                                                std::size_t bytes_max);

/// `file` is the name for messages. Errors: BadFile: no JSON, too deep, a key twice, no object.
[[nodiscard]] Result<nlohmann::json> parse_json_object(std::string_view text,
                                                       const std::string& file);

}  // namespace paceline::huggingface
