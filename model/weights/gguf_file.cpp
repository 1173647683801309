#include "model/weights/gguf_file.hpp"

#include <fmt/core.h>
#include <utility>

#include "model/weights/gguf_config.hpp"
#include "model/weights/gguf_keys.hpp"
#include "model/weights/gguf_reader.hpp"
#include "model/weights/gguf_tensors.hpp"
#include "model/weights/gguf_tokenizer.hpp"

namespace paceline {

Result<ModelParts> read_gguf(std::span<const std::byte> bytes, const std::string& file) {
    const Result<GgufHeader> header = parse_gguf(bytes, file);
    if (!header) return header.error();

    ModelParts parts;
    parts.format = fmt::format("GGUF v{}", header.value().version);
    parts.data_start = header.value().data_start;

    GgufKeys keys(header.value(), file);
    Result<ModelConfig> config = read_config(keys);
    if (!config) return config.error();
    parts.config = std::move(config).value();

    Result<std::vector<TensorView>> tensors = view_tensors(bytes, header.value(), file);
    if (!tensors) return tensors.error();
    parts.tensors = std::move(tensors).value();
    if (Status assigned = assign_tensors(parts, file); !assigned) return assigned.error();

    Result<TokenizerData> tokenizer = read_tokenizer(keys, parts.config.vocab_size);
    if (!tokenizer) return tokenizer.error();
    parts.tokenizer = std::move(tokenizer).value();
    return parts;
}

}  // namespace paceline
