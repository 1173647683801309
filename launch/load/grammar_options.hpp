// --json-schema and --grammar, and the compiled grammar that they become.
//
// Plain values and functions; one thread.
#pragma once

#include <string>

#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "launch/load/load_model.hpp"

namespace paceline {

struct GrammarOptions {
    std::string schema_file;   // --json-schema
    std::string grammar_file;  // --grammar

    [[nodiscard]] bool any() const { return !schema_file.empty() || !grammar_file.empty(); }
};

void add_grammar_options(Command& command, GrammarOptions& options);

/// The text of the file; of no kind if there is none. Errors: BadFile; Unsupported in a build
/// without grammars.
[[nodiscard]] Result<GrammarSpec> read_grammar(const GrammarOptions& options);

/// Gives `request` a grammar, compiled by a helper process. Errors: as GrammarHelpers::compile().
[[nodiscard]] Status use_grammar(GrammarSpec grammar, const OpenedModel& model, Request& request);

}  // namespace paceline
