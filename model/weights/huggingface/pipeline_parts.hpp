// The parts of a tokenizer.json as JSON: what several readers of a pipeline ask of one.
//
// Pure functions on a document that is not theirs; any thread.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline::huggingface {

/// The member, or null; of what is no object null.
[[nodiscard]] const nlohmann::json& member(const nlohmann::json& object, const char* key);

/// "Metaspace"; empty if it states none.
[[nodiscard]] std::string type_of(const nlohmann::json& part);

[[nodiscard]] bool is_true(const nlohmann::json& value);

/// The text, or nothing where it is none.
[[nodiscard]] std::string text_or_empty(const nlohmann::json& value);

/// The parts of a Sequence, whose list is called `list`; else the part alone. Null: none.
[[nodiscard]] std::vector<const nlohmann::json*> parts_of(const nlohmann::json& part,
                                                          const char* list);

/// "tokenizer.json: the normalizer "Precompiled" is not supported"
[[nodiscard]] std::string refused_part(const char* what, const nlohmann::json& part);

}  // namespace paceline::huggingface
