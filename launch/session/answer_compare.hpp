// Compares the tokens of a pipeline with those of plain decoding. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/load/load_model.hpp"
#include "launch/session/generator.hpp"

namespace paceline {

/// The first place where two texts differ, 0 for the first token; the shorter one's length if it
/// is the other's beginning; nothing if they are equal.
[[nodiscard]] std::optional<std::size_t> first_difference(std::span<const TokenId> one,
                                                          std::span<const TokenId> other);

/// "token 17: 262 instead of 314", "ends after 17 tokens instead of 64".
[[nodiscard]] std::string difference_text(std::span<const TokenId> got,
                                          std::span<const TokenId> expected);

/// A text that repeats itself: the first place where a run of `length` tokens begins that was
/// there before; nothing if none is. Repetitions raise the acceptance of every draft.
[[nodiscard]] std::optional<std::size_t> first_loop(std::span<const TokenId> text,
                                                    std::size_t length = 20);

/// Plain decoding of all prompts as `request` says but for its text, one after the other, in this
/// process on all its cores; the model is unloaded again. Errors: those of make_plain_generator()
/// and Generator::run().
[[nodiscard]] Result<std::vector<Answer>> decode_plainly(
    const ModelFile& file,
    const ModelOptions& model,
    const Environment& environment,
    const std::vector<std::vector<TokenId>>& prompts,
    Request request);

}  // namespace paceline
