// What happens to a text in front of everything else: normal forms C and KC, a prefix, replacements
// (the normalizer of tokenizer.json), with the origin of every byte carried along.
//
// Pure functions, any thread.
#pragma once

#include <span>
#include <string>

#include "model/weights/model_file.hpp"

namespace paceline {

/// A text and who wrote each byte of it: 'u' the user, 't' a template or the tokenizer itself.
struct MarkedText {
    std::string text;
    std::string origins;
};

enum class Prepends : std::uint8_t { Yes, No };

/// `marked` (valid UTF-8) after `steps`; with Prepends::No those that prepend are left out. What
/// replaces or joins bytes of both origins counts as the user's; a normal form changes a character
/// and the run of those above U+02FF (of KC: of those that are not ASCII) behind it as one.
void apply_steps(std::span<const TextStep> steps, Prepends prepends, MarkedText& marked);

}  // namespace paceline
