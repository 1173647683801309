// A build without xgrammar: every grammar is refused by name.
#include "model/grammar/grammar.hpp"

namespace paceline {
namespace {

class NoCompiler final : public GrammarCompiler {
public:
    Result<CompiledGrammarPtr> compile(const GrammarSpec& /*spec*/) override {
        return no_grammars();
    }
};

class NoLoader final : public GrammarLoader {
public:
    Result<std::unique_ptr<GrammarMatcher>> match(
        const CompiledGrammarPtr& /*grammar*/, std::span<const TokenId> /*end_tokens*/) override {
        return no_grammars();
    }
};

}  // namespace

bool has_grammars() {
    return false;
}

std::unique_ptr<GrammarCompiler> make_grammar_compiler(GrammarVocabulary /*vocabulary*/) {
    return std::make_unique<NoCompiler>();
}

std::unique_ptr<GrammarLoader> make_grammar_loader(GrammarVocabulary /*vocabulary*/) {
    return std::make_unique<NoLoader>();
}

}  // namespace paceline
