// Messages of a chat from lines, and the bar of its prompt.
#include "launch/cli/chat_input.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launch/base/progress_bar.hpp"
#include "launch/base/text_input.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

/// The message that begins with the first of `lines`; the input ends behind the last.
ReadLine message(const std::vector<std::string>& lines) {
    std::size_t next = 1;
    return joined_message(lines[0], [&] {
        return next < lines.size() ? ReadLine{ReadEnd::Line, lines[next++]} : ReadLine{};
    });
}

}  // namespace

TEST_CASE("a line is a message, and goes on behind a backslash") {
    CHECK(message({"one", "two"}).text == "one");
    CHECK(message({"one\\", "two\\", "three", "four"}).text == "one\ntwo\nthree");
    CHECK(message({"", "two"}).text.empty());
}

TEST_CASE("three quotes hold any number of lines, with or without a line of their own") {
    CHECK(message({"\"\"\"one", "two\\", "three\"\"\"", "four"}).text == "one\ntwo\\\nthree");
    CHECK(message({"\"\"\"", "", "one", "\"\"\""}).text == "\none");
    CHECK(message({"\"\"\"one\"\"\"", "two"}).text == "one");
}

TEST_CASE("the end of the input ends a message, a signal drops it") {
    CHECK(message({"one\\"}).text == "one");
    CHECK(message({"\"\"\"one", "two"}).text == "one\ntwo");
    const ReadLine dropped = joined_message("one\\", [] { return ReadLine{ReadEnd::Signal, ""}; });
    CHECK(dropped.end == ReadEnd::SignalInText);
}

TEST_CASE("a message of lines without an end is refused at the bound of a text") {
    const std::string line(kTextBytesMax / 4, 'x');
    CHECK(message({"\"\"\"", line, line, line, "\"\"\""}).end == ReadEnd::Line);
    CHECK(message({"\"\"\"", line, line, line, line, "\"\"\""}).end == ReadEnd::TooLong);
    CHECK(message({line + '\\', line + '\\', line + '\\', line + '\\', "x"}).end ==
          ReadEnd::TooLong);
    const ReadLine refused = joined_message("one\\", [] { return ReadLine{ReadEnd::TooLong}; });
    CHECK(refused.end == ReadEnd::TooLong);
}

TEST_CASE("a bar has less than 40 columns whatever its label is") {
    CHECK(bar_text("packing weights", 0.5) == "packing weights [#######........]  50 %");
    for (const char* label :
         {"", "reading the prompt", "a label that is far too long for any bar"}) {
        for (const double done : {-1.0, 0.0, 0.3, 1.0, 7.0}) {
            const std::string text = bar_text(label, done);
            if (std::string{label}.size() <= 22) CHECK(text.size() <= ProgressBar::kColumns);
            CHECK(text.ends_with(" %"));
        }
    }
    CHECK(bar_text("x", 7.0).ends_with("] 100 %"));
}
