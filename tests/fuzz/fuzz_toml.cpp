// Fuzzes the TOML reader: the input is a file. What is refused is refused with the line; of what is
// accepted every key can be read and named in a message, also below another file, and the text of a
// value is that value again.
#include <string>
#include <string_view>

#include "launch/config/toml_reader.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

/// What a grammar has: mutations of bytes alone seldom meet it.
constexpr std::string_view kPieces[] = {"[",
                                        "]",
                                        "[[",
                                        "]]",
                                        ".",
                                        "=",
                                        "a",
                                        "b",
                                        "\"",
                                        "'",
                                        "\"\"\"",
                                        "'''",
                                        "{",
                                        "}",
                                        ",",
                                        "\n",
                                        "\r",
                                        "#",
                                        " ",
                                        "\t",
                                        "1",
                                        "0x",
                                        "_",
                                        "-",
                                        "+",
                                        "e",
                                        "T",
                                        ":",
                                        "inf",
                                        "true",
                                        "\\",
                                        "\\u",
                                        "1979-05-27",
                                        "\xff",
                                        "\xc3\xa9",
                                        "\xe2\x80\xa8",
                                        "\xef\xbb\xbf",
                                        "[a]\n",
                                        "[[a]]\n",
                                        "a = 1\n",
                                        "x = {"};

void read_all(const TomlTable& table) {
    for (const char* key : {"a", "b", "x", "1"}) {
        if (!table.has(key)) continue;
        if (!std::holds_alternative<std::monostate>(table.value(key))) {
            const Result<TomlTable> again = parse_toml("x = " + table.text(key), "again");
            PACE_CHECK(again.ok() && again.value().text("x") == table.text(key), "another text");
        }
        PACE_CHECK(!table.error(key, "").what.empty(), "an error without a sentence");
        if (const Result<TomlTable> inner = table.table(key); inner.ok()) read_all(inner.value());
        const Result<std::vector<TomlTable>> list = table.tables(key);
        if (!list.ok()) continue;
        for (const TomlTable& one : list.value()) read_all(one);
    }
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    std::string text;
    for (std::uint32_t i = random.below(6); i > 0; --i) {
        const std::string key = "k" + std::to_string(i);
        const std::string_view values[] = {"1",
                                           "-0.5",
                                           "true",
                                           "\"text \\u00e9\"",
                                           "'x'",
                                           "[1, 2]",
                                           "{ a = 1, b.x = 2 }",
                                           "1979-05-27T07:32:00Z"};
        if (random.below(3) == 0)
            text += (random.below(2) == 0 ? "[[a.x" : "[[b") + std::string{"]]\n"};
        text += key + " = " + std::string{values[random.below(8)]} + "\n";
    }
    if (random.below(2) == 0) {
        for (std::uint32_t i = random.below(10); i > 0; --i)
            text += kPieces[random.below(std::size(kPieces))];
    }
    return {text.begin(), text.end()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text{reinterpret_cast<const char*>(data), size};
    const Result<TomlTable> read = parse_toml(text, "fuzz");
    if (read.ok()) {
        read_all(read.value());
        read_all(parse_toml("a = 1\n[b]\nx = 2\n", "own").value().over(read.value()));
        return 0;
    }
    const Error& error = read.error();
    PACE_CHECK(error.code == Errc::BadArgument, "another error than it promises");
    const std::string_view what = error.what;
    PACE_CHECK(what.starts_with("fuzz:") && what.find_first_of("123456789") == 5, "no line");
    return 0;
}
