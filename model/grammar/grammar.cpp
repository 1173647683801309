#include "model/grammar/grammar.hpp"

#include "model/weights/sha256.hpp"

namespace paceline {

std::string hash_of(const GrammarSpec& spec) {
    Sha256 sha;
    const auto kind = static_cast<std::byte>(spec.kind);
    sha.add({&kind, 1});
    sha.add(std::as_bytes(std::span{spec.text}));
    return sha.text().substr(0, kGrammarHashBytes);
}

GrammarVocabulary grammar_vocabulary(const Tokenizer& tokenizer, std::size_t vocab_size) {
    const auto tokens = static_cast<std::size_t>(tokenizer.vocab_size());
    PACE_CHECK(tokens <= vocab_size, "a tokenizer of more tokens than the model has");
    GrammarVocabulary made;
    made.vocab_size = vocab_size;
    made.texts.reserve(tokens);
    made.control.reserve(tokens);
    for (std::size_t i = 0; i < tokens; ++i) {
        const auto token = static_cast<TokenId>(i);
        made.texts.emplace_back(tokenizer.bytes_of(token));
        made.control.push_back(tokenizer.is_control(token));
    }
    return made;
}

/// Token by token, as long as only one may come.
std::vector<TokenId> GrammarMatcher::forced_tokens(std::size_t most) {
    std::vector<TokenId> tokens;
    TokenMask mask;
    while (tokens.size() < most) {
        fill(mask);
        const std::optional<TokenId> only = mask.only();
        if (!only || !accept(*only)) break;
        tokens.push_back(*only);
    }
    roll_back(tokens.size());
    return tokens;
}

Error no_grammars() {
    return {Errc::Unsupported,
            "this build has no grammars (JSON schemas, JSON objects, EBNF, regular expressions, "
            "structural tags): "
            "launch/setup --grammar fetches what they are built from, launch/build --grammar "
            "paceline builds them"};
}

}  // namespace paceline
