// GrammarRequest: the language that a request wants its answers in.
//
//     response_format      {"type": "json_object"}, {"type": "json_schema", "json_schema": {...}},
//                          also with "schema" beside "type", {"type": "structural_tag", "format"}
//     json_schema          a schema (llama.cpp's own API)
//     grammar              rules in EBNF that begin with `root`
//     structured_outputs   json, regex, choice, grammar, json_object or structural_tag
//
// One of them at most. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"
#include "model/grammar/grammar_spec.hpp"

namespace paceline::serve {

inline constexpr std::size_t kGrammarBytesMax = std::size_t{1} << 20;
inline constexpr std::size_t kGrammarChoicesMax = 4096;

struct GrammarRequest {
    GrammarSpec spec = {};
    std::string field = {};  // that asks for it
};

/// Errors: 400 naming the field; the fields that vLLM had before are told their new names.
[[nodiscard]] ApiResult<GrammarRequest> grammar_request(const nlohmann::ordered_json& body);

}  // namespace paceline::serve
