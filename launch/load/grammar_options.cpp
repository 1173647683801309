#include "launch/load/grammar_options.hpp"

#include <utility>

#include "launch/base/text_input.hpp"
#include "launch/grammar/grammar_helpers.hpp"

namespace paceline {

void add_grammar_options(Command& command, GrammarOptions& options) {
    command.add_option(
        "--json-schema", options.schema_file,
        "the answer is JSON that this schema (a FILE) allows; docs/structured-output.md");
    command
        .add_option(
            "--grammar", options.grammar_file,
            "the answer belongs to this grammar: a FILE of rules in EBNF, the first is `root`")
        .excludes("--json-schema");
}

Result<GrammarSpec> read_grammar(const GrammarOptions& options) {
    if (!options.any()) return GrammarSpec{};
    if (!has_grammars()) return no_grammars();
    const bool schema = !options.schema_file.empty();
    Result<std::string> text =
        read_file(schema ? options.schema_file : options.grammar_file, kGrammarTextMax);
    if (!text) return text.error();
    return GrammarSpec{schema ? GrammarKind::JsonSchema : GrammarKind::Ebnf,
                       std::move(text).value()};
}

Status use_grammar(GrammarSpec grammar, const OpenedModel& model, Request& request) {
    if (!grammar.any()) return {};
    const auto vocab_size = static_cast<std::size_t>(model.file.config().vocab_size);
    GrammarHelpers helpers{grammar_vocabulary(model.tokenizer, vocab_size), {.helpers = 1}};
    Result<CompiledGrammarPtr> compiled = helpers.compile_and_wait(grammar);
    if (!compiled) return compiled.error();
    request.grammar = std::move(grammar);
    request.compiled = std::move(compiled).value();
    return {};
}

}  // namespace paceline
