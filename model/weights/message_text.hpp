// Values out of a file made fit for a message to a person.
#pragma once

#include <string>
#include <string_view>

namespace paceline {

/// `text` in quotes, shortened, its control bytes escaped: nothing of a file reaches a terminal
/// as a command.
[[nodiscard]] std::string quoted(std::string_view text);

/// The shortest common form of a number: "100000", "1e-05", "nan".
[[nodiscard]] std::string number_text(double value);

}  // namespace paceline
