// Unicode as the Hugging Face tokenizers library knows it: classes, and the data of NFC and NFKC.
//
// The library mixes three Unicode versions, so these tables were asked out of it code point by
// code point (make_unicode_tables.py writes unicode_tables.cpp and compatibility_table.cpp).
// Constant data, any thread.
#pragma once

#include <cstdint>
#include <span>

namespace paceline::unicode {

/// What a pre-tokenizer asks of a character; bits that can be joined.
inline constexpr std::uint8_t kLetter = 1;        // \p{L}
inline constexpr std::uint8_t kNumber = 2;        // \p{N} of the regex engine
inline constexpr std::uint8_t kNumeric = 4;       // cut off one by one by the Digits pre-tokenizer
inline constexpr std::uint8_t kSpace = 8;         // \s
inline constexpr std::uint8_t kUpper = 16;        // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kLower = 32;        // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kPunctuation = 64;  // \p{P}

struct ClassRange {
    std::uint32_t first, last;  // code points, both included
    std::uint8_t classes;
};

/// Code points whose canonical combining class is not 0.
struct CombiningRange {
    std::uint32_t first, last;
    std::uint8_t combining_class;
};

/// One step of the canonical decomposition; Hangul syllables are arithmetic, not in here.
struct Decomposition {
    std::uint32_t composed;
    std::uint32_t first, second;  // second is 0 where one code point stands for another
    bool composes;                // NFC joins first and second again
};

/// A character that stands for others: what the compatibility decomposition makes of it, to the
/// end. Characters that the canonical one takes apart alike are not in here.
struct Compatibility {
    std::uint32_t composed;
    std::u32string_view text;
};

/// All sorted by code point.
[[nodiscard]] std::span<const ClassRange> class_ranges();
[[nodiscard]] std::span<const CombiningRange> combining_ranges();
[[nodiscard]] std::span<const Decomposition> decompositions();
[[nodiscard]] std::span<const Compatibility> compatibilities();

}  // namespace paceline::unicode
