// nfc, nfkc: Unicode normal forms C and KC, with the data of the Hugging Face tokenizers library.
#pragma once

#include <string>
#include <string_view>

namespace paceline::unicode {

/// Whether NFC surely leaves `text` (valid UTF-8) as it is: nothing in it is above U+02FF.
[[nodiscard]] bool surely_nfc(std::string_view text);

/// Whether NFKC does: it is ASCII.
[[nodiscard]] bool surely_nfkc(std::string_view text);

/// `text` (valid UTF-8) in normal form C. Linear but for runs of marks, which are sorted.
[[nodiscard]] std::string nfc(std::string_view text);

/// `text` (valid UTF-8) in normal form KC, which leaves ASCII alone. Linear in the same way; the
/// text may become 11 times longer.
[[nodiscard]] std::string nfkc(std::string_view text);

}  // namespace paceline::unicode
