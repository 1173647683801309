#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launch/tool_calls/reply_reader.hpp"

namespace paceline::serve {
namespace {

ReplyFormat format_of(ToolFormat tools) {
    return {.tools = tools, .names = {"rain", "time"}};
}

/// "text" -> `text`, thoughts as (..), calls as name{arguments}.
std::string shown(const ReplyEvents& events) {
    std::string all;
    for (const ReplyEvent& event : events.all()) {
        switch (event.part) {
            case ReplyPart::Text:
                all += event.text;
                break;
            case ReplyPart::Thought:
                all += "(" + event.text + ")";
                break;
            case ReplyPart::CallBegin:
                all += "<" + event.text + " ";
                break;
            case ReplyPart::Arguments:
                all += event.text;
                break;
            case ReplyPart::CallEnd:
                all += ">";
        }
    }
    return all;
}

std::string read(const ReplyFormat& format, const std::string& text) {
    ReplyReader reader{format};
    ReplyEvents events;
    reader.push(text, events);
    reader.finish(events);
    return shown(events);
}
std::string read(ToolFormat tools, const std::string& text) {
    return read(format_of(tools), text);
}

/// Any division of `text` gives the same events, also before its end.
void check_divisions(const ReplyFormat& format, const std::string& text) {
    CAPTURE(text);
    std::vector<std::string> after;  // [n]: what was said after n bytes
    ReplyReader by_byte{format};
    ReplyEvents bytes;
    after.push_back(shown(bytes));
    for (const char c : text) {
        by_byte.push({&c, 1}, bytes);
        after.push_back(shown(bytes));
    }
    by_byte.finish(bytes);
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        ReplyReader reader{format};
        ReplyEvents events;
        reader.push(std::string_view{text}.substr(0, cut), events);
        CHECK(shown(events) == after[cut]);
        reader.push(std::string_view{text}.substr(cut), events);
        CHECK(shown(events) == after.back());
        reader.finish(events);
        CHECK(events.all() == bytes.all());
    }
}

const std::string kRain = R"({"name": "rain", "arguments": {"city": "K\u00f6ln", "days": [1, 2]}})";
const std::string kRainLlama = R"({"name": "rain", "parameters": {"city": "x"}})";
const std::string kTime = R"({"name": "time", "arguments": {}})";

TEST_CASE("tool calls: Hermes has tags around each call, blanks beside them go") {
    const ToolFormat hermes = ToolFormat::Hermes;
    CHECK(read(hermes, "<tool_call>\n" + kTime + "\n</tool_call>") == "<time {}>");
    CHECK(read(hermes, "I look.\n<tool_call>\n" + kRain + "\n</tool_call>\n<tool_call>" + kTime +
                           "</tool_call>\n") ==
          R"(I look.<rain {"city": "K\u00f6ln", "days": [1, 2]}><time {}>)");
    CHECK(read(hermes, "<tool_call>" + kTime + "</tool_call>\n\nDone. ") == "<time {}>Done. ");
    CHECK(read(hermes, "a\n<tool_call>" + kTime + "</tool_call>\nb") == "a<time {}>\nb");
    CHECK(read(hermes, "<tool_call>" + kTime + "<tool_call>" + kTime) == "<time {}><time {}>");
}

TEST_CASE("tool calls: text that is no call comes out as it is") {
    for (const ToolFormat tools : {ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::Mistral,
                                   ToolFormat::Phi4, ToolFormat::Json, ToolFormat::Xml}) {
        for (const std::string text : {"",
                                       " ",
                                       "a",
                                       "1 < 2 <tool",
                                       "<tool_call>x</tool_call>",
                                       "<tool_call>",
                                       "\n{\"a\": 1}",
                                       "[TOOL_CALLS]",
                                       "[TOOL_CALLS] [1]",
                                       "[TOOL_CALLS]f g",
                                       "[TOOL_CALLS]f[ARG]{}",
                                       "{\"name\": \"rain\"}",
                                       "{\"name\": \"other\", \"parameters\": {}}",
                                       "functools",
                                       "functools[]",
                                       "x functools[{\"name\": \"rain\", \"arguments\": {}}]",
                                       "[{}]",
                                       "[",
                                       "<|tool_call|>[",
                                       "<|python_tag|>print(1)",
                                       "{\"name\": \"rain\", \"arguments\": 1}",
                                       "{\"name\": 5, \"arguments\": {}}",
                                       "<tool_call>{\"name\": \"rain\",}</tool_call>",
                                       "<tool_call>{\"arguments\": {}}</tool_call>",
                                       "<<<tool_call>{}",
                                       "{\"name\": \"rain\"",
                                       "<tool_call>{\"name\":\"\",\"arguments\":{}}"}) {
            CAPTURE(static_cast<int>(tools));
            CHECK(read(tools, text) == text);
            check_divisions(format_of(tools), text);
        }
    }
}

TEST_CASE("tool calls: members come in any order, arguments may be a text, or missing") {
    const auto call = [](const std::string& object) {
        return read(ToolFormat::Hermes, "<tool_call>" + object + "</tool_call>");
    };
    CHECK(call(R"({"arguments": {"a": {"b": "}"}}, "id": 7, "name": "f"})") ==
          R"(<f {"a": {"b": "}"}}>)");
    CHECK(call(R"({"name": "f", "arguments": "{\"a\": 1}"})") == R"(<f {"a": 1}>)");
    CHECK(call(R"({"name": "f", "arguments": "\n {\"a\": 1} "})") == R"(<f {"a": 1}>)");
    CHECK(call(R"({"name": "f", "arguments": null})") == "<f {}>");
    CHECK(call(R"({"name": "f"})") == "<f {}>");
    CHECK(call(R"({"type": "function", "x": -1.5e3, "name": "f", "parameters": {}})") == "<f {}>");
    CHECK(call("{\"name\": \"f\", \"arguments\": {\"a\": \"1\n2\"}}") ==
          R"(<f {"a": "1\u000a2"}>)");
    CHECK(call(R"({"name": "f", "arguments": "no object"})").starts_with("<tool_call>"));
}

TEST_CASE("tool calls: a call that breaks, or is cut, ends where it does") {
    CHECK(read(ToolFormat::Hermes, R"(<tool_call>{"name": "f", "arguments": {"a": 1)") ==
          R"(<f {"a": 1>)");
    CHECK(read(ToolFormat::Hermes, R"(<tool_call>{"name": "f", "arguments": {"a": tru! x)") ==
          R"(<f {"a": tru>! x)");
    CHECK(read(ToolFormat::Hermes, "<tool_call>" + kTime + "\n</tool") == "<time {}>");
    CHECK(read(ToolFormat::Json, R"([{"name": "rain", "arguments": {}}, 5])") == "<rain {}>5]");
}

TEST_CASE("tool calls: Llama 3 begins with an object of a known tool, or has a tag") {
    const ToolFormat llama = ToolFormat::Llama3;
    CHECK(read(llama, "\n\n" + kRainLlama) == R"(<rain {"city": "x"}>)");
    CHECK(read(llama, kRainLlama + "; " + kRainLlama) ==
          R"(<rain {"city": "x"}><rain {"city": "x"}>)");
    CHECK(read(llama, kRainLlama + "\n" + kTime) == R"(<rain {"city": "x"}><time {}>)");
    CHECK(read(llama, "So: <|python_tag|>" + kRainLlama) == R"(So:<rain {"city": "x"}>)");
    CHECK(read(llama, "So: " + kRainLlama) == "So: " + kRainLlama);
    CHECK(read(llama, kRainLlama + "; and then") == R"(<rain {"city": "x"}>; and then)");
}

TEST_CASE("tool calls: Mistral has a list, or names with arguments behind them") {
    const ToolFormat mistral = ToolFormat::Mistral;
    CHECK(read(mistral, "[TOOL_CALLS][" + kTime + ", " + kTime + "]") == "<time {}><time {}>");
    CHECK(read(mistral, "[TOOL_CALLS] [" + kTime + "]") == "<time {}>");
    CHECK(read(mistral, R"([TOOL_CALLS]rain[ARGS]{"city": "x"}[TOOL_CALLS]time[ARGS]{})") ==
          R"(<rain {"city": "x"}><time {}>)");
    CHECK(read(mistral, R"(Yes.[TOOL_CALLS]rain[CALL_ID]a1B2[ARGS] {"city": "x"})") ==
          R"(Yes.<rain {"city": "x"}>)");
    CHECK(read(mistral, R"([TOOL_CALLS]time{})") == "<time {}>");
}

TEST_CASE("tool calls: Phi-4 has a list behind a word or between tags") {
    const ToolFormat phi = ToolFormat::Phi4;
    CHECK(read(phi, "functools[" + kTime + "," + kTime + "]") == "<time {}><time {}>");
    CHECK(read(phi, "Yes <|tool_call|>[" + kTime + "]<|/tool_call|> ok") == "Yes<time {}> ok");
}

ReplyFormat xml_format() {
    ReplyFormat format = format_of(ToolFormat::Xml);
    format.parameters = {{.tool = "rain",
                          .texts = {"city", "code", "note"},
                          .words = {"unit", "mode"},
                          .nullable = {"note", "mode"}}};
    return format;
}

std::string tagged(const std::string& name, const std::string& parameters) {
    return "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>";
}

std::string parameter(const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
}

TEST_CASE("tool calls: tags have values without quotes, and schemas say which are texts") {
    const ReplyFormat xml = xml_format();
    CHECK(read(xml, "I look.\n" +
                        tagged("rain", parameter("city", "Köln") + parameter("days", "[1, 2]"))) ==
          "I look.<rain {\"city\": \"Köln\", \"days\": [1, 2]}>");
    CHECK(read(xml, tagged("time", "") + "\n" + tagged("time", "")) == "<time {}><time {}>");
    // Of a text a line break at each end is the format's; quotes and line breaks are escaped.
    CHECK(read(xml, tagged("rain", parameter("code", "\nif (a < \"b\") {\n\t\\\n}\n"))) ==
          R"(<rain {"code": "\nif (a < \"b\") {\n\t\\\n}\n"}>)");
    CHECK(read(xml, tagged("rain", "<parameter=city>x</parameter><parameter=code></parameter>")) ==
          R"(<rain {"city": "x", "code": ""}>)");
    CHECK(read(xml, tagged("rain", parameter("city", "5") + parameter("unit", "  C \n"))) ==
          R"(<rain {"city": "5", "unit": "C"}>)");
    for (const auto& [value, json] :
         std::vector<std::pair<std::string, std::string>>{{"5", "5"},
                                                          {"-1.5e3", "-1.5e3"},
                                                          {" true ", "true"},
                                                          {"True", "true"},
                                                          {"None", "null"},
                                                          {"{\"a\": \"1\n2\"}", R"({"a": "1\n2"})"},
                                                          {"\"quoted\"", R"("quoted")"},
                                                          {"5 6", R"("5 6")"},
                                                          {"tru", R"("tru")"},
                                                          {"[1", R"("[1")"},
                                                          {"", R"("")"},
                                                          {"plain", R"("plain")"}}) {
        CAPTURE(value);
        CHECK(read(xml, tagged("rain", parameter("x", value))) == "<rain {\"x\": " + json + "}>");
        check_divisions(xml, tagged("rain", parameter("x", value)));
    }
}

TEST_CASE("tool calls: a text that may be null is null or a text, never another value") {
    const ReplyFormat xml = xml_format();
    for (const auto& [value, json] :
         std::vector<std::pair<std::string, std::string>>{{"null", "null"},
                                                          {"None", "null"},
                                                          {"5", R"("5")"},
                                                          {"true", R"("true")"},
                                                          {"[1]", R"("[1]")"},
                                                          {"nulls", R"("nulls")"},
                                                          {" a\n", R"(" a\n")"},
                                                          {"", R"("")"}}) {
        CAPTURE(value);
        const std::string call = tagged("rain", parameter("note", value));
        CHECK(read(xml, call) == "<rain {\"note\": " + json + "}>");
        check_divisions(xml, call);
    }
    CHECK(read(xml, tagged("rain", parameter("mode", " null\n") + parameter("mode", " 5 "))) ==
          R"(<rain {"mode": null, "mode": "5"}>)");
    CHECK(read(xml, tagged("rain", parameter("city", "null") + parameter("unit", "None"))) ==
          R"(<rain {"city": "null", "unit": "None"}>)");
    const std::string value(kWaitingValueBytesMax + 10, 'n');
    CHECK(read(xml, tagged("rain", parameter("note", value))) ==
          "<rain {\"note\": \"" + value + "\"}>");
}

TEST_CASE("tool calls: the name of a parameter may have blanks and quotes") {
    const ReplyFormat xml = xml_format();
    const std::string call = tagged("rain", parameter("a b", "1") + parameter("\"c\" \\", "2"));
    CHECK(read(xml, call) == R"(<rain {"a b": 1, "\"c\" \\": 2}>)");
    check_divisions(xml, call);
}

TEST_CASE("tool calls: tags that are broken, cut or alone") {
    const ReplyFormat xml = xml_format();
    CHECK(read(xml, "<function=time>\n</function> ok") == "<time {}>ok");
    CHECK(read(xml, "<function=other>\n</function>") == "<function=other>\n</function>");
    CHECK(read(xml, "<tool_call><function=other></function></tool_call>") == "<other {}>");
    CHECK(read(xml, "<tool_call><function=time></tool_call> x") == "<time {}>x");
    CHECK(read(xml, "<tool_call>\n<function=rain>\n<parameter=city>\nKö") ==
          "<rain {\"city\": \"Kö>");
    CHECK(read(xml, "<tool_call>\n<function=rain>\n<parameter=days>\n[1") == "<rain {\"days\": >");
    CHECK(read(xml, "<tool_call><function=time><b>x") == "<time {><b>x");
    CHECK(read(xml, "<tool_call><function=time>x</function>") == "<time {>x</function>");
    CHECK(read(xml, "<tool_call><function=time><function=time></function>") == "<time {><time {}>");
    CHECK(read(xml, "<tool_call><function=time><parameter=a<b>") == "<time {><parameter=a<b>");
    CHECK(read(xml, "<tool_call><function=time><parameter=a\n>") == "<time {><parameter=a\n>");
    for (const char* text : {"<tool_call>\n<function", "<tool_call><function=>", "<function=f g>",
                             "<tool_call><b>", "a < b <function", "<parameter=a>1</parameter>"}) {
        CAPTURE(text);
        CHECK(read(xml, text) == text);
        check_divisions(xml, text);
    }
    CHECK(read(xml, "<tool_call>\n" + kTime + "\n</tool_call>") == "<time {}>");
}

TEST_CASE("tool calls: a value that is no text and too long to wait for becomes one") {
    const std::string value(kWaitingValueBytesMax + 10, '1');
    CHECK(read(xml_format(), tagged("rain", parameter("x", value))) ==
          "<rain {\"x\": \"" + value + "\"}>");
}

TEST_CASE("tool calls: plain JSON is an object or a list of them") {
    CHECK(read(ToolFormat::Json, kTime) == "<time {}>");
    CHECK(read(ToolFormat::Json, "[" + kTime + ",\n" + kRainLlama + "]\n") ==
          R"(<time {}><rain {"city": "x"}>)");
}

TEST_CASE("tool calls: every format cut at every byte gives the same events") {
    const std::string two = kRain + ";" + kTime;
    const std::string list = "[" + kRain + " ,\n" + kTime + "]";
    for (const ToolFormat tools : {ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::Mistral,
                                   ToolFormat::Phi4, ToolFormat::Json, ToolFormat::Xml}) {
        for (const std::string& text : std::vector<std::string>{
                 "a \n <tool_call>\n" + kRain + "\n</tool_call>\n<tool_call>" + kTime +
                     "</tool_call> b",
                 two, " " + two + " x", "<|python_tag|>" + two, "x[TOOL_CALLS]" + list + " y",
                 "[TOOL_CALLS]rain[CALL_ID]a1[ARGS]{\"a\": \"[ARGS]\"}[TOOL_CALLS]time{}z",
                 "functools" + list, "<|tool_call|>" + list + "<|/tool_call|> z", list, "  " + list,
                 "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": nul}}</tool_call>"})
            check_divisions(format_of(tools), text);
    }
    const std::string rain =
        tagged("rain", parameter("city", "K\"\n</p\n") + parameter("days", "[1, 2]") +
                           parameter("unit", " C"));
    for (const std::string& text : std::vector<std::string>{
             "a \n " + rain + "\n" + tagged("time", "") + " b", rain + rain,
             "<function=rain><parameter=city></parameter></function>\n\nx " + rain,
             "<tool_call><function=rain><parameter=city>\n\n</parameter>?</function>"})
        check_divisions(xml_format(), text);
}

TEST_CASE("thoughts: only an answer that begins with the tag has one") {
    const ReplyFormat thoughts{.thoughts = true};
    CHECK(read(thoughts, "<think>\nSo <it> is.\n</think>\n\nYes. ") == "(So <it> is.)Yes. ");
    CHECK(read(thoughts, "\n<think></think>Yes.") == "Yes.");
    CHECK(read(thoughts, "<think>So </thin") == "(So </thin)");
    CHECK(read(thoughts, "<thin") == "<thin");
    CHECK(read(thoughts, " Yes <think>no</think>") == " Yes <think>no</think>");
    CHECK(read(thoughts, "<think>a<</think>b") == "(a<)b");
    const ReplyFormat begun{.thoughts = true, .begins_in_thought = true};
    CHECK(read(begun, "So.\n</think>\nYes.") == "(So.)Yes.");
    CHECK(read(begun, "So. ") == "(So.)");
    CHECK(read({}, "<think>a</think>") == "<think>a</think>");
    for (const ReplyFormat& format : {thoughts, begun}) {
        check_divisions(format, "<think>\n So </th <</think> </think>\n\n Yes </think> ");
        check_divisions(format, " \n<thinking>");
    }
}

TEST_CASE("thoughts: calls come behind them, those inside are part of the thought") {
    ReplyFormat format = format_of(ToolFormat::Hermes);
    format.thoughts = true;
    const std::string call = "<tool_call>\n" + kTime + "\n</tool_call>";
    CHECK(read(format, "<think>\n" + call + "\n</think>\n\n" + call) == "(" + call + ")<time {}>");
    check_divisions(format, "<think>a</think>\n" + call + call);
}

TEST_CASE("tool formats: each follows from the words of a template") {
    CHECK(tool_format_of("{{ '<tool_call>' }}") == ToolFormat::Hermes);
    CHECK(tool_format_of("<tool_call> <function=f>") == ToolFormat::Xml);
    CHECK(tool_format_of("<seed:tool_call> <function=f>") == ToolFormat::Json);
    CHECK(tool_format_of("[TOOL_CALLS] ") == ToolFormat::Mistral);
    CHECK(tool_format_of("<|tool_call|>") == ToolFormat::Phi4);
    CHECK(tool_format_of("functools[") == ToolFormat::Phi4);
    CHECK(tool_format_of("<|start_header_id|>ipython") == ToolFormat::Llama3);
    CHECK(tool_format_of("<|im_start|>") == ToolFormat::Json);
    CHECK(shows_tools("{% if tools %}"));
    CHECK_FALSE(shows_tools("messages"));
}

}  // namespace
}  // namespace paceline::serve
