// formatted_time(): a time as Python's datetime.strftime() writes it, for strftime_now().
//
// The time has no zone, as that of datetime.now(): %z, %Z and %:z print nothing. %f has six digits.
// All other directives are the C library's in the C locale, with its flags (- _ 0 ^ #), widths and
// modifiers (E, O), as in Python; on Linux that is glibc.
// Errors: a directive that the C library does not have fails the run with its name (Python would
// copy it into the text); so does a width of more than kTimeWidthMax.
// Pure, but for %s, which reads the time zone of the process.
#pragma once

#include <ctime>

#include "model/templates/text.hpp"

namespace paceline::jinja {

class Run;

/// The reading of a clock and a calendar, without a zone.
struct LocalTime {
    std::tm calendar{};
    int microseconds = 0;
};

inline constexpr int kTimeWidthMax = 1000;

/// What the user wrote of `format` stays the user's; a directive's output has the directive's
/// origin.
[[nodiscard]] Text formatted_time(Run& run, const LocalTime& time, const Text& format);

}  // namespace paceline::jinja
