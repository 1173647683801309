#include "ipc/base/utf8.hpp"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("every code point but the surrogates is written and read back") {
    for (char32_t code = 0; code < 0x110000; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        std::string text;
        utf8::append(text, code);
        const utf8::Step step = utf8::first(text);
        if (step.form != utf8::Form::Whole || step.code != code || step.bytes != text.size()) {
            FAIL("U+" << static_cast<unsigned>(code));
        }
    }
}

TEST_CASE("an invalid part is as long as a character could have begun so") {
    // Unicode 15, chapter 3.9, table 3-8 and its kin.
    struct Example {
        std::string_view text;
        utf8::Form form;
        int bytes;
    };
    using utf8::Form;
    const Example examples[] = {
        {"\x80", Form::Invalid, 1},
        {"\xC0\xAF", Form::Invalid, 1},
        {"\xE0\x80\xAF", Form::Invalid, 1},
        {"\xE2\x82(", Form::Invalid, 2},
        {"\xED\xA0\x80", Form::Invalid, 1},
        {"\xF0\x9F\x98z", Form::Invalid, 3},
        {"\xF0\x80", Form::Invalid, 1},
        {"\xF4\x90", Form::Invalid, 1},
        {"\xF5\x80", Form::Invalid, 1},
        {"\xE2\x82", Form::Unfinished, 2},
        {"\xF4\x8F\xBF", Form::Unfinished, 3},
    };
    for (const Example& example : examples) {
        const utf8::Step step = utf8::first(example.text);
        CHECK(step.form == example.form);
        CHECK(step.bytes == example.bytes);
    }
}

TEST_CASE("each invalid part becomes one replacement character, what is valid stays") {
    CHECK(utf8::replace_invalid("") == "");
    CHECK(utf8::replace_invalid("plain text, long enough for words") ==
          "plain text, long enough for words");
    CHECK(utf8::replace_invalid("a\xF1\x80\x80\xE1\x80\xC2"
                                "b\x80"
                                "c\x80\xBF"
                                "d") == "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
    CHECK(utf8::replace_invalid("\xE2\x82\xAC\xE2\x82") == "\u20AC\uFFFD");
}

TEST_CASE("a byte order mark is taken from the beginning, once") {
    CHECK(utf8::without_mark("\xEF\xBB\xBFtext") == "text");
    CHECK(utf8::without_mark("\xEF\xBB\xBF\xEF\xBB\xBF") == "\xEF\xBB\xBF");
    CHECK(utf8::without_mark("text\xEF\xBB\xBF") == "text\xEF\xBB\xBF");
    CHECK(utf8::without_mark("\xEF\xBB") == "\xEF\xBB");
    CHECK(utf8::without_mark("").empty());
}

}  // namespace paceline
