#include "launch/base/print.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace paceline {

std::string print(const char* format, ...) {
    std::array<char, 256> text{};
    va_list values;
    va_start(values, format);
    std::vsnprintf(text.data(), text.size(), format, values);
    va_end(values);
    return text.data();
}

}  // namespace paceline
