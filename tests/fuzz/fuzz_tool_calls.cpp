// Fuzzes the reader of answers: the input is a byte that chooses the format, one that divides the
// text, and the text. Any division gives the events that single bytes give, also before the end;
// calls begin and end in turn; a text without a call comes out as it went in.
#include <string>
#include <string_view>

#include "launch/tool_calls/reply_reader.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;
using serve::ReplyEvents;
using serve::ReplyPart;

namespace {

constexpr std::string_view kPieces[] = {"<tool_call>",
                                        "</tool_call>",
                                        "<|python_tag|>",
                                        "[TOOL_CALLS]",
                                        "[ARGS]",
                                        "[CALL_ID]",
                                        "functools",
                                        "<|tool_call|>",
                                        "<|/tool_call|>",
                                        "<function=f>",
                                        "<function=",
                                        "<parameter=t>",
                                        "<parameter=n>\n",
                                        "\n</parameter>",
                                        "</parameter>\n",
                                        "</function>",
                                        "<think>",
                                        "</think>",
                                        "{\"name\": \"f\", \"arguments\": {\"a\": [1, -2.5e3]}}",
                                        "{\"name\":\"f\",\"parameters\":{}}",
                                        "{\"arguments\": {\"b\": \"\\u00e9\\n\"}, \"name\": \"g\"}",
                                        "{\"name\": \"f\", \"arguments\": \"{}\"}",
                                        "{\"name\": \"h\"}",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ";",
                                        ":",
                                        "\"",
                                        "\\",
                                        "\n",
                                        " ",
                                        "f",
                                        "\"name\"",
                                        "\"arguments\"",
                                        "null",
                                        "true",
                                        "0",
                                        "-1.5",
                                        "text",
                                        "<",
                                        "</",
                                        "\xc3\xa9"};

serve::ReplyFormat format_of(std::uint8_t choice) {
    return {.tools = static_cast<serve::ToolFormat>(choice % 7U),
            .names = {"f", "g"},
            .thoughts = (choice / 7U) % 2U == 1,
            .begins_in_thought = (choice / 14U) % 2U == 1,
            .parameters = {{.tool = "f", .texts = {"t"}, .words = {"w"}, .nullable = {"t"}}}};
}

void check_order(const ReplyEvents& events) {
    bool open = false;
    bool behind_thought = false;
    for (const serve::ReplyEvent& event : events.all()) {
        switch (event.part) {
            case ReplyPart::Thought:
                PACE_CHECK(!behind_thought, "a thought behind the text");
                break;
            case ReplyPart::CallBegin:
                PACE_CHECK(!open && !event.text.empty(), "a call within a call, or without a name");
                open = true;
                break;
            case ReplyPart::Arguments:
                PACE_CHECK(open && event.text.front() == '{', "arguments of no call, or no object");
                break;
            case ReplyPart::CallEnd:
                PACE_CHECK(open, "a call ends twice");
                open = false;
                break;
            default:
                PACE_CHECK(!open, "text within a call");
        }
        behind_thought = behind_thought || event.part != ReplyPart::Thought;
    }
    PACE_CHECK(!open, "a call does not end");
}

/// Without a call and a thought all of it is text.
void check_text(const serve::ReplyFormat& format,
                std::string_view text,
                const ReplyEvents& events) {
    if (format.thoughts || events.all().size() > 1) return;
    if (events.all().empty()) {
        PACE_CHECK(text.empty(), "text is lost");
    } else if (events.all().front().part == ReplyPart::Text) {
        PACE_CHECK(events.all().front().text == text, "text is changed");
    }
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    std::string text;
    text += static_cast<char>(random.next());
    text += static_cast<char>(random.next());
    for (std::uint32_t i = 1 + random.below(14); i > 0; --i)
        text += kPieces[random.below(std::size(kPieces))];
    return {text.begin(), text.end()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const serve::ReplyFormat format = format_of(data[0]);
    const std::string_view text{reinterpret_cast<const char*>(data) + 2, size - 2};
    const std::size_t cut = 1 + data[1] % 31U;
    serve::ReplyReader by_byte{format};
    serve::ReplyReader by_part{format};
    ReplyEvents bytes;
    ReplyEvents parts;
    for (std::size_t at = 0; at < text.size(); at += cut) {
        const std::string_view part = text.substr(at, cut);
        for (const char c : part) by_byte.push({&c, 1}, bytes);
        by_part.push(part, parts);
        PACE_CHECK(bytes.all() == parts.all(), "the division of the text is seen");
        PACE_CHECK(by_byte.thinks() == by_part.thinks(), "the division of the thought is seen");
    }
    by_byte.finish(bytes);
    by_part.finish(parts);
    PACE_CHECK(bytes.all() == parts.all(), "the division of the text is seen at its end");
    check_order(bytes);
    check_text(format, text, bytes);
    return 0;
}
