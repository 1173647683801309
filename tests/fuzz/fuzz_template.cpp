// Fuzzes chat templates: the input is a template, which is parsed and rendered for a fixed
// conversation. Whatever it is, it ends within its limits, prints valid UTF-8 with an origin for
// each byte, or is refused with its line.
#include <string>
#include <string_view>

#include "ipc/base/utf8.hpp"
#include "model/templates/json_value.hpp"
#include "model/templates/template.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

/// What a grammar has: mutations of bytes alone seldom meet it.
constexpr std::string_view kPieces[] = {"{{ ",
                                        " }}",
                                        "{%- ",
                                        " -%}",
                                        "{% ",
                                        " %}",
                                        "{# ",
                                        " #}",
                                        "messages",
                                        "[0]",
                                        "['content']",
                                        ".role",
                                        ".items()",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        ":",
                                        ",",
                                        "|",
                                        " | ",
                                        " ~ ",
                                        " + ",
                                        " - ",
                                        " * ",
                                        " // ",
                                        " % ",
                                        " ** ",
                                        " == ",
                                        " < ",
                                        " in ",
                                        " not in ",
                                        " is ",
                                        " not ",
                                        " and ",
                                        " or ",
                                        " if ",
                                        " else ",
                                        "if x",
                                        "endif",
                                        "for m in messages",
                                        "endfor",
                                        "set n.x = ",
                                        "set x",
                                        "endset",
                                        "macro f(a, b=1)",
                                        "endmacro",
                                        "f(1)",
                                        "generation",
                                        "endgeneration",
                                        "filter upper",
                                        "endfilter",
                                        "break",
                                        "continue",
                                        "loop.index",
                                        "loop.nextitem",
                                        "namespace(x=1)",
                                        "range(3)",
                                        "range(9, 0, -2)",
                                        ".name",
                                        "varargs",
                                        "kwargs",
                                        "strftime_now('%-d%5Y%Q')",
                                        ".keys()",
                                        "none",
                                        "true",
                                        "1",
                                        "0.5",
                                        "'text'",
                                        "\"\\u00e9\\n\"",
                                        "tojson(indent=2)",
                                        "trim",
                                        "join(', ')",
                                        "map('upper')",
                                        "selectattr('role', 'eq', 'user')",
                                        "list",
                                        "sort",
                                        "unique",
                                        "dictsort",
                                        "default('d')",
                                        "length",
                                        "split(' ')",
                                        ".split('a')",
                                        "[::-1]",
                                        "[-2:]",
                                        ".strip()",
                                        "replace('a', 'bb')",
                                        "first",
                                        "last",
                                        "indent(3)",
                                        "round(2)",
                                        "int",
                                        "string",
                                        "defined",
                                        "mapping",
                                        "\n",
                                        "  ",
                                        "\xff",
                                        "\xc3\xa9"};

constexpr std::string_view kWhole[] = {
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}",
    "{%- set n = namespace(x=[]) %}{% for m in messages %}{% set n.x = n.x + [m.role] %}{% endfor "
    "%}{{ n.x }}",
    "{% macro f(a, b=1) %}{{ a }}{% if b > 0 %}{{ f(a, b - 1) }}{% endif %}{% endmacro %}{{ f('x', "
    "3) }}",
    "{{ messages | tojson(indent=2) }}{{ messages[0].content[::-1] | upper }}",
    "{% set t %}{{ messages | map(attribute='content') | join('-') }}{% endset %}{{ t * 3 }}",
    "{% for k, v in d | dictsort if v %}{{ loop.index ~ k ~ v }}{% else %}none{% endfor %}"};

constexpr std::string_view kVariables[] = {
    R"([{"role": "user", "content": "Hello a\u00e9 <|im_end|>"}, {"role": "assistant", "content": "b"}])",
    R"({"z": 1, "a": [1.5, null, true], "m": {"n": "\u2028'"}})"};

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    std::string text;
    for (std::uint32_t i = 1 + random.below(3); i > 0; --i) {
        if (random.below(2) == 0) text += kWhole[random.below(std::size(kWhole))];
        std::string tag;
        for (std::uint32_t k = random.below(8); k > 0; --k)
            tag += kPieces[random.below(std::size(kPieces))];
        text += random.below(2) == 0 ? tag : "{{ messages" + tag + " }}";
    }
    return {text.begin(), text.end()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string source{reinterpret_cast<const char*>(data), size};
    const Result<jinja::Template> parsed = jinja::Template::parse(source);
    const auto check = [](const Error& error) {
        PACE_CHECK(error.code == Errc::Unsupported, "another error than it promises");
        PACE_CHECK(error.what.starts_with("the chat template, line "), "no line");
    };
    if (!parsed) {
        check(parsed.error());
        return 0;
    }
    jinja::Variables variables;
    variables.set("messages", jinja::json_value(variables.heap(), kVariables[0]).value());
    variables.set("d", jinja::json_value(variables.heap(), kVariables[1]).value());
    jinja::Limits limits;
    limits.steps = 20'000;
    limits.output_bytes = 1U << 16U;
    limits.memory_bytes = 1U << 20U;
    const Result<jinja::Text> text = parsed.value().render(variables, jinja::LocalTime{}, limits);
    if (!text) {
        check(text.error());
        return 0;
    }
    PACE_CHECK(text.value().size() <= limits.output_bytes, "more output than the limit");
    PACE_CHECK(text.value().origins().size() == text.value().size(), "a byte without origin");
    PACE_CHECK(utf8::valid_prefix(text.value().bytes()) == text.value().size(), "no UTF-8");
    return 0;
}
