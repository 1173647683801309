#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <utility>

#include "model/weights/gguf/gguf_config.hpp"
#include "model/weights/gguf/gguf_fused.hpp"
#include "model/weights/gguf/gguf_keys.hpp"
#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/gguf/gguf_shards.hpp"
#include "model/weights/gguf/gguf_tensors.hpp"
#include "model/weights/gguf/gguf_tokenizer.hpp"

namespace paceline {

Result<ModelParts> read_gguf_shards(std::span<const GgufBytes> files) {
    const Result<std::vector<GgufHeader>> parsed = parse_shards(files);
    if (!parsed) return parsed.error();
    const std::vector<GgufHeader>& headers = parsed.value();
    const std::string& first = files.front().file;

    ModelParts parts;
    parts.format = fmt::format("GGUF v{}", headers.front().version);
    if (files.size() > 1) parts.format += fmt::format(", {} shards", files.size());
    parts.data_start = headers.front().data_start;

    GgufKeys keys(headers.front(), first);
    Result<ModelConfig> config = read_config(keys, parts.remarks);
    if (!config) return config.error();
    parts.config = std::move(config).value();
    parts.architecture = std::string(keys.text_or("general.architecture", ""));

    for (std::size_t i = 0; i < files.size(); ++i) {
        if (i > 0) parts.shard_starts.push_back(headers[i].data_start);
        Result<std::vector<TensorView>> tensors =
            view_tensors(files[i].bytes, headers[i], files[i].file);
        if (!tensors) return tensors.error();
        std::move(tensors.value().begin(), tensors.value().end(),
                  std::back_inserter(parts.tensors));
    }
    if (parts.architecture == "phi3") {
        if (Status split = split_fused(parts, first); !split) return split.error();
    }
    if (Status assigned = assign_tensors(parts, first); !assigned) return assigned.error();
    if (parts.remarks.empty() && parts.config.rope.scaling == RopeScaling::None) {
        parts.remarks.emplace_back(
            "a GGUF file of this architecture cannot say whether the model has a sliding window or "
            "dynamic rope scaling (docs/file-formats.md)");
    }

    Result<TokenizerData> tokenizer = read_tokenizer(keys, parts.config.vocab_size, parts.remarks);
    if (!tokenizer) return tokenizer.error();
    parts.tokenizer = std::move(tokenizer).value();
    Result<ChatSources> chat = read_chat_sources(keys);
    if (!chat) return chat.error();
    parts.chat = std::move(chat).value();
    return parts;
}

}  // namespace paceline
