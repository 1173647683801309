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

/// The digest of make_piece_fixtures.py: FNV-1a of the numbers in decimal, commas between.
[[nodiscard]] std::string digest(const std::vector<TokenId>& numbers);

/// The lines of corpus.json, repaired, and those of pieces.json.
[[nodiscard]] std::vector<std::string> piece_lines();

/// spm.json, unigram.json or tiny-spm.json.
struct PieceVocabulary {
    std::vector<std::string> tokens;
    std::vector<TokenKind> kinds;
    std::vector<double> scores;
    nlohmann::json merges;
};
[[nodiscard]] PieceVocabulary piece_vocabulary(const std::string& name);

/// As a GGUF file of this vocabulary gives it to the tokenizer, by the rules of the model "llama".
[[nodiscard]] TokenizerData gguf_pieces(const PieceVocabulary& vocabulary);

/// tokenizer.json of this vocabulary with the other parts as `variant` of pieces.json states them.
[[nodiscard]] nlohmann::json piece_document(const nlohmann::json& variant,
                                            const PieceVocabulary& vocabulary);
/// What the reader of folders makes of it.
[[nodiscard]] TokenizerData read_document(const nlohmann::json& document, std::size_t vocab_size);

/// Checks every line of the corpus, with special tokens parsed and as text, against
/// NAME.expected.json, the ids of the Hugging Face library.
void check_agreement(const Tokenizer& tokenizer, const std::string& name);

/// Checks the conversations of chat.json, rendered by the file's own template with jinja2.
void check_chat(const Tokenizer& tokenizer, const TokenizerData& data, const std::string& name);

}  // namespace paceline::fixtures
