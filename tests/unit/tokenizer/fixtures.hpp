// The files of tests/fixtures/tokenizer, as make_fixtures.py wrote them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/tokenizer/tokenizer.hpp"

namespace paceline::fixtures {

/// tests/fixtures/tokenizer/NAME; the test ends with a message if it cannot be read.
[[nodiscard]] nlohmann::json read_json(const std::string& name);

/// NAME.json: "smollm", "gpt2", "llama3", "qwen2".
[[nodiscard]] TokenizerData tokenizer_data(const std::string& name);
[[nodiscard]] Tokenizer tokenizer(const std::string& name);

/// The lines of corpus.json as bytes, invalid UTF-8 included.
[[nodiscard]] std::vector<std::string> corpus();

/// Checks every line of the corpus, with special tokens parsed and as text, against
/// NAME.expected.json, the ids of the Hugging Face library.
void check_agreement(const Tokenizer& tokenizer, const std::string& name);

/// Checks the conversations of chat.json, rendered by the file's own template with jinja2.
void check_chat(const Tokenizer& tokenizer, const TokenizerData& data, const std::string& name);

}  // namespace paceline::fixtures
