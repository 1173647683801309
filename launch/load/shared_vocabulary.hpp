// The tokens that a draft model and its target have in common, compared id by id.
//
// Two vocabularies are the same if, up to the last id at which both have a token, each id has the
// same text in both (of a user-defined token U+2581 counts as a space) and is an added token
// (control or user-defined) in both or in neither. Unused ids are padding of the embedding: beyond
// the shared tokens each model may have as many as it likes, or tokens that the other one lacks.
// Pure function of checked files; any thread.
#pragma once

#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// How many ids, from 0 on, are tokens of both: what lies above is never proposed.
/// Errors: BadArgument naming both files, how many tokens differ, and the first of them with both
/// texts; or the file that has no tokens, and why.
[[nodiscard]] Result<int> shared_vocabulary(const ModelFile& draft, const ModelFile& target);

}  // namespace paceline
