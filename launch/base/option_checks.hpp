// Checks of command line options: the message names the option (CLI11 puts it in front), the value
// and what is allowed.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "launch/base/command.hpp"

namespace paceline {

/// One of the given words, in upper or lower case: the variable gets the word as it is given here.
[[nodiscard]] OptionCheck one_of(std::vector<std::string> words);
/// "a,b": each part one of the given words; of case as above.
[[nodiscard]] OptionCheck list_of(std::vector<std::string> words);

enum class Bound : unsigned char { Included, Excluded };

/// A number between two bounds.
[[nodiscard]] OptionCheck number_between(double lowest,
                                         double highest,
                                         Bound low = Bound::Included,
                                         Bound high = Bound::Included);

/// After number_between(): not between 0 and `lowest`, where a sampler's arithmetic ends.
[[nodiscard]] OptionCheck zero_or_at_least(double lowest);

/// A whole number of at least `lowest`.
[[nodiscard]] OptionCheck whole_number(long long lowest,
                                       long long highest = std::numeric_limits<int>::max());

/// A number of bytes, or of KiB, MiB, GiB: "300M", "1.5G". The variable gets bytes.
[[nodiscard]] OptionCheck byte_size();
/// Nothing if `word` is none, 0, or more than 2^50.
[[nodiscard]] std::optional<std::uint64_t> parse_byte_size(const std::string& word);

/// `check`; its complaint about a number of 0 or less ends in `instead`: what stands here for what
/// such a number means in other programs.
[[nodiscard]] OptionCheck explain_low(const OptionCheck& check, const std::string& instead);

/// Of explain_low() for -n, where -1 is not possible.
inline constexpr const char* kNoEndlessAnswer =
    "an answer until the model ends it is an -n as large as the context";

/// "1,2,4" as numbers; every one at least `lowest`. For options that take a list in one word.
[[nodiscard]] OptionCheck whole_number_list(long long lowest,
                                            long long highest = std::numeric_limits<int>::max());
/// The numbers of a word that whole_number_list() has accepted.
[[nodiscard]] std::vector<int> parse_int_list(const std::string& word);
/// The parts of "a,b,c".
[[nodiscard]] std::vector<std::string> split_list(const std::string& word);

}  // namespace paceline
