// The grammars of tools against the library that compiles them, and against the reader of answers.
#include "launch/api/tools/tool_grammar.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launch/api/tools/parameter_texts.hpp"
#include "launch/tool_calls/reply_reader.hpp"
#include "model/grammar/grammar.hpp"

namespace paceline::serve {
namespace {

constexpr TokenId kEnd = 256;

/// A token for each byte, and an end.
GrammarVocabulary byte_vocabulary() {
    GrammarVocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) {
        vocabulary.texts.emplace_back(1, static_cast<char>(byte));
        vocabulary.control.push_back(false);
    }
    vocabulary.texts.emplace_back("<end>");
    vocabulary.control.push_back(true);
    vocabulary.vocab_size = vocabulary.texts.size();
    return vocabulary;
}

/// How many bytes of `text` the grammar takes; one more than it has: it may end there, too.
std::size_t taken(const GrammarSpec& spec, const std::string& text) {
    Result<CompiledGrammarPtr> compiled = make_grammar_compiler(byte_vocabulary())->compile(spec);
    REQUIRE_MESSAGE(compiled, (compiled ? "" : compiled.error().what));
    const std::unique_ptr<GrammarLoader> loader = make_grammar_loader(byte_vocabulary());
    const std::vector<TokenId> ends{kEnd};
    Result<std::unique_ptr<GrammarMatcher>> matcher = loader->match(compiled.value(), ends);
    REQUIRE(matcher);
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!matcher.value()->accept(static_cast<unsigned char>(text[i]))) return i;
    }
    return text.size() + (matcher.value()->accept(kEnd) ? 1 : 0);
}

/// "thought|text|name{arguments}..."
std::string read(const ReplyFormat& format, const std::string& text) {
    ReplyReader reader{format};
    ReplyEvents events;
    reader.push(text, events);
    reader.finish(events);
    std::string thought, said, calls;
    for (const ReplyEvent& event : events.all()) {
        if (event.part == ReplyPart::Thought) thought += event.text;
        if (event.part == ReplyPart::Text) said += event.text;
        if (event.part == ReplyPart::CallBegin || event.part == ReplyPart::Arguments)
            calls += event.text;
    }
    return thought + "|" + said + "|" + calls;
}

const ToolRequest kTools{
    .functions = {
        {"f", R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"},
        {"g", ""}}};

ToolRequest required(bool parallel) {
    ToolRequest tools = kTools;
    tools.choice = ToolChoice::Required;
    tools.parallel = parallel;
    return tools;
}

ReplyFormat of(ToolFormat tools) {
    return {.tools = tools, .names = {"f", "g"}};
}

struct Written {
    ToolFormat format;
    std::string one;
    std::string two;
};

const std::vector<Written>& forms() {
    static const std::string f = R"({"name": "f", "arguments": {"a": 1}})";
    static const std::string g = R"({"name": "g", "arguments": {}})";
    static const std::string llama = R"({"name": "f", "parameters": {"a": 1}})";
    static const std::vector<Written> all{
        {ToolFormat::Hermes, "<tool_call>\n" + f + "\n</tool_call>",
         "<tool_call>\n" + f + "\n</tool_call>\n<tool_call>\n" + g + "\n</tool_call>"},
        {ToolFormat::Llama3, llama, llama + "; " + R"({"name": "g", "parameters": {}})"},
        {ToolFormat::Mistral, "[TOOL_CALLS][" + f + "]", "[TOOL_CALLS][" + f + ", " + g + "]"},
        {ToolFormat::Phi4, "<|tool_call|>[" + f + "]<|/tool_call|>",
         "<|tool_call|>[" + f + ", " + g + "]<|/tool_call|>"},
        {ToolFormat::Json, f, "[" + f + ", " + g + "]"}};
    return all;
}

TEST_CASE("tool grammar: what it allows where calls are required is what the reader reads" *
          doctest::skip(!has_grammars())) {
    for (const Written& form : forms()) {
        CAPTURE(form.one);
        const ReplyFormat format = of(form.format);
        const GrammarSpec one = tool_grammar(format, required(false), false);
        const GrammarSpec two = tool_grammar(format, required(true), false);
        CHECK(taken(one, form.one) == form.one.size() + 1);
        CHECK(taken(one, form.two) < form.two.size());
        CHECK(taken(two, form.two) == form.two.size() + 1);
        CHECK(taken(one, "Text") == 0);
        CHECK(read(format, form.one) == R"(||f{"a": 1})");
        CHECK(read(format, form.two) == R"(||f{"a": 1}g{})");
        std::string wrong = form.one;
        wrong.replace(wrong.find("1}"), 1, "x");
        CHECK(taken(one, wrong) == wrong.find("x}"));
    }
}

TEST_CASE("tool grammar: free text stays free up to the tag that opens a call" *
          doctest::skip(!has_grammars())) {
    const GrammarSpec spec = tool_grammar(of(ToolFormat::Hermes), kTools, false);
    const std::string text = "It rains < or {not}. ";
    CHECK(taken(spec, text) == text.size() + 1);
    const std::string call = forms()[0].one;
    CHECK(taken(spec, text + call + text) == 2 * text.size() + call.size() + 1);
    std::string other = text + call;
    other.replace(other.find("\"f\""), 3, "\"x\"");
    CHECK(taken(spec, other) == other.find("x\""));
}

TEST_CASE(
    "tool grammar: of Mistral and Phi-4 a tag in a text opens a list of calls, or one by name" *
    doctest::skip(!has_grammars())) {
    const std::string text = "It rains [or] not. ";
    for (const Written& form : forms()) {
        if (form.format != ToolFormat::Mistral && form.format != ToolFormat::Phi4) continue;
        CAPTURE(form.two);
        const GrammarSpec spec = tool_grammar(of(form.format), kTools, false);
        CHECK(taken(spec, text) == text.size() + 1);
        CHECK(taken(spec, text + form.two + text) == 2 * text.size() + form.two.size() + 1);
        std::string other = text + form.two;
        other.replace(other.find("\"f\""), 3, "\"x\"");
        CHECK(taken(spec, other) == other.find("x\""));
    }
    const GrammarSpec mistral = tool_grammar(of(ToolFormat::Mistral), kTools, false);
    for (const std::string call : {R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{})",
                                   R"(Yes.[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{"a": 1})"}) {
        CAPTURE(call);
        CHECK(taken(mistral, call) == call.size() + 1);
    }
    const std::string unknown = "[TOOL_CALLS]h";
    CHECK(taken(mistral, unknown) == unknown.size() - 1);
    CHECK(read(of(ToolFormat::Mistral), R"([TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{"a": 1})") ==
          R"(||f{"a": 1})");
}

TEST_CASE("tool grammar: calls with tags around their values, required and in free text" *
          doctest::skip(!has_grammars())) {
    const std::string one =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    const std::string two = one + "\n<tool_call>\n<function=g>\n</function>\n</tool_call>";
    const GrammarSpec single = tool_grammar(of(ToolFormat::Xml), required(false), false);
    const GrammarSpec several = tool_grammar(of(ToolFormat::Xml), required(true), false);
    CHECK(taken(single, one) == one.size() + 1);
    CHECK(taken(single, two) < two.size());
    CHECK(taken(several, two) == two.size() + 1);
    CHECK(taken(single, "Text") == 0);
    CHECK(read(of(ToolFormat::Xml), two) == R"(||f{"a": 1}g{})");
    std::string wrong = one;
    wrong.replace(wrong.find("\n1\n"), 3, "\nx\n");
    CHECK(taken(single, wrong) == wrong.find("x\n"));
    const std::string text = "It rains < or {not}. ";
    const GrammarSpec free = tool_grammar(of(ToolFormat::Xml), kTools, false);
    CHECK(taken(free, text + two + text) == 2 * text.size() + two.size() + 1);
    const ToolRequest texts{
        .functions = {{"f", R"({"type":"object","properties":{"a":{"type":"string"},)"
                            R"("b":{"enum":["x","y"]}},"required":["a","b"]})"}},
        .choice = ToolChoice::Required};
    const std::string call =
        "<tool_call>\n<function=f>\n<parameter=a>\n{\"1\"\n\n</parameter>\n<parameter=b>\nx\n"
        "</parameter>\n</function>\n</tool_call>";
    ReplyFormat format = of(ToolFormat::Xml);
    format.parameters = {parameter_texts(texts.functions.front())};
    CHECK(taken(tool_grammar(format, texts, false), call) == call.size() + 1);
    CHECK(read(format, call) == R"(||f{"a": "{\"1\"\n", "b": "x"})");
}

TEST_CASE("tool grammar: an array between tags may have items where its schema names none" *
          doctest::skip(!has_grammars())) {
    const ToolRequest lists{
        .functions = {{"f", R"({"type":"object","properties":{"a":{"type":"array"},)"
                            R"("b":{"type":"array","items":{"type":"array"}}},)"
                            R"("required":["a","b"]})"}},
        .choice = ToolChoice::Required};
    const std::string call =
        "<tool_call>\n<function=f>\n<parameter=a>\n[1, \"x\"]\n</parameter>\n<parameter=b>\n"
        "[[2], []]\n</parameter>\n</function>\n</tool_call>";
    CHECK(taken(tool_grammar(of(ToolFormat::Xml), lists, false), call) == call.size() + 1);
}

TEST_CASE("parameter texts: strings by a schema, and those among them with blanks around") {
    const ToolFunction function{
        "f", R"({"type":"object","properties":{"a":{"type":"string"},)"
             R"("b":{"type":"string","maxLength":3},"c":{"enum":["x"]},"d":{"enum":["x",1]},)"
             R"("e":{"type":["string","integer"]},"g":{"const":"k"},)"
             R"("h":{"type":"integer"},"i":true}})"};
    CHECK(parameter_texts(function) == ParameterTexts{"f", {"a"}, {"b", "c", "g"}, {}});
    CHECK(parameter_texts({"g", ""}) == ParameterTexts{"g", {}, {}, {}});
}

TEST_CASE("parameter texts: strings that may be null, and those behind references") {
    const ToolFunction function{
        "f", R"({"type":"object","properties":{"a":{"type":["string","null"]},)"
             R"("b":{"anyOf":[{"type":"string"},{"type":"null"}]},"c":{"enum":["x",null]},)"
             R"("d":{"$ref":"#/$defs/text"},"e":{"allOf":[{"$ref":"#/$defs/a~1b"}]},)"
             R"("g":{"anyOf":[{"type":"string"},{"type":"integer"}]},"h":{"type":"null"},)"
             R"("i":{"$ref":"#/$defs/circle"},"j":{"$ref":"#/$defs/none"},)"
             R"("k":{"type":"string","anyOf":[{"minLength":1},{"type":"null"}]},)"
             R"("l":{"oneOf":[{"$ref":"#/$defs/text"},{"type":"null"}],"default":null}},)"
             R"("$defs":{"text":{"type":"string"},"a/b":{"type":"string","pattern":"x"},)"
             R"("circle":{"$ref":"#/$defs/circle"}}})"};
    CHECK(parameter_texts(function) ==
          ParameterTexts{"f", {"a", "b", "d", "k", "l"}, {"c", "e"}, {"a", "b", "c", "l"}});
}

TEST_CASE("tool grammar: calls that no tag opens leave JSON in a text alone") {
    for (const ToolFormat format : {ToolFormat::Llama3, ToolFormat::Json})
        CHECK_FALSE(tool_grammar(of(format), kTools, false).any());
}

TEST_CASE("tool grammar: a thought may come first, and must end if the prompt began it" *
          doctest::skip(!has_grammars())) {
    const std::string call = forms()[0].one;
    ReplyFormat format = of(ToolFormat::Hermes);
    format.thoughts = true;
    const GrammarSpec may = tool_grammar(format, required(false), false);
    const std::string thought = "<think>\nSo <what>?\n</think>\n\n" + call;
    CHECK(taken(may, thought) == thought.size() + 1);
    CHECK(taken(may, call) == call.size() + 1);
    CHECK(read(format, thought) == R"(So <what>?||f{"a": 1})");
    format.begins_in_thought = true;
    const GrammarSpec must = tool_grammar(format, required(false), false);
    const std::string begun = "So?\n</think>\n\n" + call;
    CHECK(taken(must, begun) == begun.size() + 1);
}

TEST_CASE("answer grammar: a thought is free up to its control token, a schema begins behind it" *
          doctest::skip(!has_grammars())) {
    GrammarVocabulary vocabulary = byte_vocabulary();
    const auto closes = static_cast<TokenId>(vocabulary.texts.size());
    vocabulary.texts.emplace_back("</think>");
    vocabulary.control.push_back(true);
    vocabulary.vocab_size = vocabulary.texts.size();
    const GrammarSpec schema{.kind = GrammarKind::JsonSchema, .text = R"({"type":"boolean"})"};
    const auto matcher_of = [&](const GrammarSpec& spec, GrammarLoader& loader) {
        Result<CompiledGrammarPtr> compiled = make_grammar_compiler(vocabulary)->compile(spec);
        REQUIRE(compiled);
        Result<std::unique_ptr<GrammarMatcher>> made =
            loader.match(compiled.value(), std::vector<TokenId>{kEnd});
        REQUIRE(made);
        return std::move(made).value();
    };
    const std::unique_ptr<GrammarLoader> loader = make_grammar_loader(vocabulary);
    const ReplyFormat begun{.thoughts = true, .begins_in_thought = true};
    const auto matcher = matcher_of(answer_grammar(begun, {}, schema, true), *loader);
    for (const char c : std::string{"So {"}) CHECK(matcher->accept(c));
    CHECK_FALSE(matcher->accept(kEnd));
    CHECK(matcher->accept(closes));
    CHECK_FALSE(matcher->accept('S'));
    for (const char c : std::string{"\ntrue"}) CHECK(matcher->accept(c));
    CHECK(matcher->accept(kEnd));
    // Without a thought the token is as forbidden as any other control token.
    CHECK_FALSE(matcher_of(schema, *loader)->accept(closes));
}

TEST_CASE("answer grammar: a schema behind a thought, or beside calls" *
          doctest::skip(!has_grammars())) {
    const GrammarSpec schema{.kind = GrammarKind::JsonSchema, .text = R"({"type":"boolean"})"};
    const GrammarSpec behind = answer_grammar({.thoughts = true}, {}, schema, false);
    const std::string thought = "<think>So</think>\n\ntrue";
    CHECK(taken(behind, thought) == thought.size() + 1);
    CHECK(taken(behind, "false") == 6);
    CHECK(taken(behind, "no") == 0);
    const GrammarSpec beside = answer_grammar(of(ToolFormat::Hermes), kTools, schema, false);
    CHECK(taken(beside, "true") == 5);
    CHECK(taken(beside, forms()[0].one) == forms()[0].one.size() + 1);
    for (const GrammarSpec& asked :
         {GrammarSpec{.kind = GrammarKind::Regex, .text = "[ab]+"},
          GrammarSpec{.kind = GrammarKind::Ebnf, .text = R"(root ::= "ab" | "b")"}}) {
        const GrammarSpec wrapped = answer_grammar({.thoughts = true}, {}, asked, false);
        CHECK(taken(wrapped, "<think>x</think>ab") == 19);
        CHECK(taken(wrapped, "ab") == 3);
    }
    const GrammarSpec any =
        answer_grammar({.thoughts = true}, {}, {.kind = GrammarKind::Json}, false);
    CHECK(taken(any, R"({"a": [1]})") == 11);
}

}  // namespace
}  // namespace paceline::serve
