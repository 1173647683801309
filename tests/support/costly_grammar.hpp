// A grammar that no limit of compiling allows.
#pragma once

#include <string>
#include <utility>

#include "model/grammar/grammar_spec.hpp"

namespace paceline::testing {

/// Minutes of processor time and gigabytes, from few bytes.
inline GrammarSpec costly_grammar() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "((((a|b){0,300}c){0,300}d){0,300}x){0,300}";
    return {GrammarKind::Regex, std::move(text)};
}

}  // namespace paceline::testing
