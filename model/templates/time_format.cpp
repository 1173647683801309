#include "model/templates/time_format.hpp"

#include <clocale>
#include <fmt/core.h>
#include <optional>

#include "ipc/base/utf8.hpp"
#include "model/templates/run.hpp"

namespace paceline::jinja {
namespace {

/// The directive at the beginning of `format`: '%', flags, width, modifier, conversion. Shorter
/// where the text ends.
std::string_view first_directive(std::string_view format) {
    const auto skip = [format](std::size_t at, std::string_view any) {
        const std::size_t end = format.find_first_not_of(any, at);
        return end == std::string_view::npos ? format.size() : end;
    };
    if (format.starts_with("%:z")) return format.substr(0, 3);
    std::size_t at = skip(1, "-_0^#");
    at = skip(at, "0123456789");
    if (at < format.size() && (format[at] == 'E' || format[at] == 'O')) ++at;
    if (at < format.size()) at += utf8::first(format.substr(at)).bytes;
    return format.substr(0, at);
}

int width_of(std::string_view directive) {
    int width = 0;
    for (const char c : directive) {
        const bool digit = c >= '0' && c <= '9';
        if (digit && width <= kTimeWidthMax) width = width * 10 + (c - '0');
    }
    return width;
}

/// What the C library prints for one directive; nothing: it has no such one, and would copy it.
std::optional<std::string> printed(const std::tm& calendar, std::string_view directive) {
    static const locale_t kLocale = newlocale(LC_ALL_MASK, "C", nullptr);
    // The blank in front tells an empty result from a failure, which are both 0 bytes.
    const std::string format = ' ' + std::string{directive};
    std::string out(kTimeWidthMax + 100, '\0');
    const std::size_t bytes =
        strftime_l(out.data(), out.size(), format.c_str(), &calendar, kLocale);
    if (bytes == 0) return {};
    out.resize(bytes);
    out.erase(0, 1);
    const bool copied = out.find('%') != std::string::npos && !directive.ends_with('%');
    return copied || directive == "%" ? std::nullopt : std::optional{std::move(out)};
}

std::optional<std::string> printed(const LocalTime& time, std::string_view directive) {
    if (directive == "%z" || directive == "%Z" || directive == "%:z") return "";
    if (directive == "%f") return fmt::format("{:06}", time.microseconds);
    std::tm calendar = time.calendar;
    calendar.tm_isdst = -1;  // as in Python, where a time without a zone does not know it
    calendar.tm_gmtoff = 0;
    calendar.tm_zone = nullptr;
    return printed(calendar, directive);
}

}  // namespace

Text formatted_time(Run& run, const LocalTime& time, const Text& format) {
    Text out;
    const std::string_view bytes = format.bytes();
    for (std::size_t at = 0; at < bytes.size() && run.step();) {
        const std::size_t next = std::min(bytes.find('%', at), bytes.size());
        run.append(out, format.sub(at, next - at));
        if (next == bytes.size()) break;
        const std::string_view directive = first_directive(bytes.substr(next));
        if (width_of(directive) > kTimeWidthMax) {
            run.fail(fmt::format("strftime_now(): '{}' is wider than {} characters", directive,
                                 kTimeWidthMax));
            break;
        }
        const std::optional<std::string> words = printed(time, directive);
        if (!words) {
            run.fail(
                fmt::format("strftime_now(): '{}' is no directive that can be printed; "
                            "'%%' prints '%'",
                            directive));
            break;
        }
        run.append(out, *words, format.origin(next));
        at = next + directive.size();
    }
    return out;
}

}  // namespace paceline::jinja
