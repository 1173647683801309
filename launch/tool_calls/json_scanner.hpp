// JsonScanner: where one JSON value ends, byte by byte.
//
//     scanner.push('{')  ->  Inside     ...     scanner.push('}')  ->  Ended
//
// A number has no last byte of its own: the byte behind it gives EndedBefore and is not part of it.
// Blanks in front of the value are Inside. Control characters inside strings, which JSON forbids
// and models write (a line break), are Inside: in_string() lets the caller escape them. At most
// kScannedDepthMax levels. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace paceline::serve {

inline constexpr std::size_t kScannedDepthMax = 64;

[[nodiscard]] constexpr bool is_json_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class JsonScanner {
public:
    enum class Step : std::uint8_t { Inside, Ended, EndedBefore, Bad };

    /// Not after anything but Inside.
    [[nodiscard]] Step push(char c);
    /// The next byte belongs to a string.
    [[nodiscard]] bool in_string() const { return state_ == State::Text; }

private:
    enum class State : std::uint8_t {
        Value,         // a value begins
        FirstElement,  // or the list ends
        FirstKey,      // or the object ends
        Key,
        Colon,
        AfterValue,
        Text,
        Escape,
        Hex,
        Number,
        Literal,
    };
    enum class Digits : std::uint8_t { Sign, Zero, Whole, Dot, Fraction, E, ESign, Exponent };

    [[nodiscard]] Step value(char c);
    [[nodiscard]] Step open(char c);
    [[nodiscard]] Step close(char c);
    [[nodiscard]] Step after_value(char c);
    [[nodiscard]] Step text(char c);
    [[nodiscard]] Step number(char c);
    [[nodiscard]] Step ended();

    State state_ = State::Value;
    Digits digits_ = Digits::Sign;
    std::string open_ = {};  // '{' and '['
    bool text_is_key_ = false;
    int hex_left_ = 0;
    std::string_view literal_ = {};  // what is left of it
};

}  // namespace paceline::serve
