#include <ctime>

#include <doctest/doctest.h>

#include "tests/unit/templates/render.hpp"

namespace paceline {
namespace {

std::string now(const std::string& format) {
    return testing::rendered("{{ strftime_now('" + format + "') }}");
}

}  // namespace

TEST_CASE("a time is written as Python's datetime.now().strftime() writes it") {
    // What datetime(2026, 3, 9, 14, 5, 7, 42).strftime() of Python 3.11 on Linux gives.
    static constexpr std::pair<const char*, const char*> kWritten[] = {
        {"%B %-d, %Y", "March 9, 2026"},
        {"%a %A %b %B %h", "Mon Monday Mar March Mar"},
        {"%c", "Mon Mar  9 14:05:07 2026"},
        {"%d %e %-d %_d %0e %-e", "09  9 9  9 09 9"},
        {"%m %-m %_m", "03 3  3"},
        {"%y %Y %-y %C %G %g", "26 2026 26 20 2026 26"},
        {"%H %I %-I %k %l %-H %_H", "14 02 2 14  2 14 14"},
        {"%M %-M %S %-S", "05 5 07 7"},
        {"%p %P %#p %^a %^B %#a", "PM pm pm MON MARCH MON"},
        {"%j %-j %U %W %V %u %w", "068 68 10 10 11 1 1"},
        {"%D %F %T %R %r %x %X",
         "03/09/26 2026-03-09 14:05:07 14:05 02:05:07 PM 03/09/26 14:05:07"},
        {"%n%t%%", "\n\t%"},
        {"%%d %%%d", "%d %09"},
        {"%10d|%05d|%_5d|%-5d|%10A|%010A", "0000000009|00009|    9|    9|    Monday|0000Monday"},
        {"%Ey %EY %Ex %EX %Ec %EC", "26 2026 03/09/26 14:05:07 Mon Mar  9 14:05:07 2026 20"},
        {"%Od %Oe %OH %OI %Om %OM %OS %Ou %OU %OV %Ow %OW %Oy",
         "09  9 14 02 03 05 07 1 10 11 1 10 26"},
        {"\xc3\xa9%d\xc3\xbc",
         "\xc3\xa9"
         "09\xc3\xbc"},
        {"", ""}};
    for (const auto& [format, written] : kWritten) {
        CAPTURE(format);
        CHECK(now(format) == written);
    }
}

TEST_CASE("a time has microseconds and no zone") {
    CHECK(now("%f") == "000042");
    CHECK(now("[%z%Z%:z]") == "[]");
    CHECK(now("%5Z|%_z|%-Z|") == "     |||");
    std::tm calendar = testing::fixture_time().calendar;
    calendar.tm_isdst = -1;
    CHECK(now("%s") == std::to_string(std::mktime(&calendar)));
}

TEST_CASE("a directive that there is not is refused by its name, not copied") {
    for (const char* directive : {"%Q", "%-Q", "%5Q", "%E", "%Ed", "%E5d", "%10^d", "%+", "%-f",
                                  "%:d", "%\xc3\xa9", "%", "%-", "%05"}) {
        CAPTURE(directive);
        const std::string said = now(std::string{"a "} + directive);
        CHECK(said.starts_with("error: strftime_now(): '%"));
        CHECK(said.find("no directive") != std::string::npos);
    }
    CHECK(now("%Qd").find("'%Q'") != std::string::npos);
    CHECK(now("%1000d").size() == 1000);
    for (const char* wide : {"%1001d", "%99999999999999999999d"})
        CHECK(now(wide).find("wider than 1000 characters") != std::string::npos);
}

TEST_CASE("the words of a format that a user wrote stay the user's") {
    const Result<jinja::Text> text =
        testing::render("{{ strftime_now('%Y ' + x) }}", R"({"x": "<%d>"})");
    REQUIRE(text.ok());
    CHECK(text.value().bytes() == "2026 <09>");
    CHECK(text.value().origins() == "tttttuuuu");
}

}  // namespace paceline
