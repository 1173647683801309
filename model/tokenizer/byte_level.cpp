#include "model/tokenizer/byte_level.hpp"

#include <array>

#include "ipc/base/utf8.hpp"

namespace paceline::byte_level {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t kAlphabetEnd = 0x100 + 68;  // 68 bytes do not stand for themselves

struct Alphabet {
    std::array<char32_t, 256> symbol_of{};
    std::array<std::int16_t, kAlphabetEnd> byte_of{};  // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
    Alphabet alphabet;
    for (std::int16_t& byte : alphabet.byte_of) byte = -1;
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char32_t code = stands_for_itself(byte) ? char32_t{byte} : next++;
        alphabet.symbol_of[byte] = code;
        alphabet.byte_of[code] = static_cast<std::int16_t>(byte);
    }
    return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.symbol_of[' '] == 0x120 && kAlphabet.byte_of[kAlphabetEnd - 1] == 0xAD);

}  // namespace

std::string symbol(std::uint8_t byte) {
    std::string out;
    utf8::append(out, kAlphabet.symbol_of[byte]);
    return out;
}

std::optional<std::string> decode(std::string_view text) {
    std::string bytes;
    bytes.reserve(text.size());
    while (!text.empty()) {
        const utf8::Step step = utf8::first(text);
        if (step.form != utf8::Form::Whole || step.code >= kAlphabetEnd) return std::nullopt;
        const std::int16_t byte = kAlphabet.byte_of[step.code];
        if (byte < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(byte));
        text.remove_prefix(step.bytes);
    }
    return bytes;
}

}  // namespace paceline::byte_level
