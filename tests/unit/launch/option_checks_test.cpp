// Checks of the command line: what they accept, and how they refuse.
#include "launch/base/option_checks.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

std::string verdict(const OptionCheck& check, const std::string& value) {
    return check.complaint(value);
}

}  // namespace

TEST_CASE("a word outside the list is refused with the list") {
    const OptionCheck check = one_of({"f32", "bf16"});
    CHECK(verdict(check, "f32").empty());
    CHECK(verdict(check, "f16") == "'f16' is not one of f32|bf16");
    CHECK(verdict(check, "f32,bf16") == "'f32,bf16' is not one of f32|bf16");
    CHECK(verdict(list_of({"f32", "bf16"}), "bf16,f32").empty());
    CHECK(verdict(list_of({"f32", "bf16"}), "bf16,q4") == "'q4' is not one of f32|bf16");
    CHECK(!verdict(list_of({"f32", "bf16"}), "").empty());
}

TEST_CASE("a word of the list in other letters becomes the word, any other value stays as it is") {
    const OptionCheck check = one_of({"q8_0", "bf16"});
    CHECK(check.spelling("Q8_0") == "q8_0");
    CHECK(check.spelling("bf16") == "bf16");
    CHECK(check.spelling("Q4_K_M") == "Q4_K_M");
    const OptionCheck list = list_of({"f32", "bf16"});
    CHECK(list.spelling("BF16,f32") == "bf16,f32");
    CHECK(list.spelling(",BF16,") == ",bf16,");
    CHECK(list.spelling("") == "");
}

TEST_CASE("numbers outside their range, and what is no number, are refused with the range") {
    const OptionCheck half_open = number_between(0.0, 1.0, Bound::Excluded);
    CHECK(verdict(half_open, "1").empty());
    CHECK(verdict(half_open, "0.25").empty());
    CHECK(verdict(half_open, "0") == "'0' is not in (0, 1]");
    CHECK(verdict(half_open, "1.5") == "'1.5' is not in (0, 1]");
    CHECK(verdict(half_open, "nan") == "'nan' is not a number");
    CHECK(verdict(half_open, "0,5") == "'0,5' is not a number");
    CHECK(verdict(half_open, "") == "'' is not a number");
}

TEST_CASE("a number may be 0 although the smallest other one is larger") {
    const OptionCheck check = zero_or_at_least(1e-6);
    CHECK(verdict(check, "0").empty());
    CHECK(verdict(check, "0.000001").empty());
    CHECK(verdict(check, "1e-7") == "'1e-7' is not 0 or at least 1e-06");
}

TEST_CASE("a number that means something in other programs is told what stands here for it") {
    const OptionCheck check = explain_low(whole_number(1, 8), "leave it out");
    CHECK(verdict(check, "1").empty());
    CHECK(verdict(check, "0") == "'0' is not a whole number, 1 to 8; leave it out");
    CHECK(verdict(check, "-1") == "'-1' is not a whole number, 1 to 8; leave it out");
    CHECK(verdict(check, "9") == "'9' is not a whole number, 1 to 8");
    CHECK(verdict(check, "x") == "'x' is not a whole number, 1 to 8");
    CHECK(explain_low(one_of({"a"}), "x").allowed == "a");
}

TEST_CASE("whole numbers do not overflow, truncate or take units") {
    const OptionCheck check = whole_number(-1);
    CHECK(verdict(check, "-1").empty());
    CHECK(verdict(check, "2147483647").empty());
    CHECK(verdict(check, "2147483648") == "'2147483648' is not a whole number, -1 to 2147483647");
    CHECK(verdict(check, "-2") == "'-2' is not a whole number, -1 or more");
    CHECK(!verdict(check, "99999999999999999999").empty());
    CHECK(!verdict(check, "4.0").empty());
    CHECK(!verdict(check, "4k").empty());
    CHECK(verdict(whole_number(1, 8), "9") == "'9' is not a whole number, 1 to 8");
}

TEST_CASE("lists of numbers name the part that is wrong") {
    const OptionCheck check = whole_number_list(1, 64);
    CHECK(verdict(check, "1,2,64").empty());
    CHECK(verdict(check, "1,,2") == "'' in '1,,2' is not a whole number, 1 to 64");
    CHECK(!verdict(check, "1,2,").empty());
    CHECK(!verdict(check, "").empty());
    CHECK(parse_int_list("1,2,64") == std::vector{1, 2, 64});
}

TEST_CASE("numbers of bytes have units of 1,024, and are neither nothing nor everything") {
    CHECK(parse_byte_size("300") == 300U);
    CHECK(parse_byte_size("300M") == 300U << 20U);
    CHECK(parse_byte_size("1.5g") == 3U << 29U);
    CHECK(parse_byte_size("2GiB") == std::uint64_t{2} << 30U);
    for (const char* word : {"", "M", "0", "-1", "nan", "1e30", "2 G", "2Gx", "2X", "inf"})
        CHECK_MESSAGE(!parse_byte_size(word), word);
    CHECK(byte_size().spelling("2K") == "2048");
    CHECK(byte_size().spelling("much") == "much");
    CHECK(verdict(byte_size(), "much") ==
          "must be a number of bytes such as 300M or 2G, not 'much'");
}
