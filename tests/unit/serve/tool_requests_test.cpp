#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/chat_request.hpp"
#include "launch/api/tools/tool_grammar.hpp"
#include "launch/api/tools/tool_request.hpp"
#include "launch/api/tools/tools_as_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

json tool(const std::string& name) {
    return {
        {"type", "function"},
        {"function",
         {{"name", name},
          {"description", "d"},
          {"parameters", {{"type", "object"}, {"properties", {{"a", {{"type", "string"}}}}}}}}}};
}

std::string param(const json& body) {
    ApiResult<ToolRequest> read = tool_request(body);
    return read ? "accepted" : std::to_string(read.error().status) + " " + read.error().param;
}

std::vector<std::string> callable(const json& body) {
    std::vector<std::string> names;
    ApiResult<ToolRequest> read = tool_request(body);
    REQUIRE_MESSAGE(read, (read ? "" : read.error().message));
    for (const ToolFunction& function : read.value().functions) names.push_back(function.name);
    return names;
}

TEST_CASE("tools: the choice says which of them may, or must, be called") {
    using Names = std::vector<std::string>;
    const json tools = json::array({tool("f"), tool("g")});
    CHECK(callable({{"tools", tools}}) == Names{"f", "g"});
    CHECK(callable({{"tools", tools}, {"tool_choice", "none"}}).empty());
    CHECK(callable({{"tools", json::array()}, {"tool_choice", "auto"}}).empty());
    const json named{{"type", "function"}, {"function", {{"name", "g"}}}};
    CHECK(callable({{"tools", tools}, {"tool_choice", named}}) == Names{"g"});
    CHECK(tool_request({{"tools", tools}, {"tool_choice", named}}).value().choice ==
          ToolChoice::Required);
    CHECK(callable({{"tools", tools}, {"tool_choice", {{"type", "function"}, {"name", "g"}}}}) ==
          Names{"g"});
    const json allowed{{"type", "allowed_tools"},
                       {"allowed_tools", {{"mode", "required"}, {"tools", json::array({named})}}}};
    CHECK(callable({{"tools", tools}, {"tool_choice", allowed}}) == Names{"g"});
    ToolRequest read =
        tool_request(
            {{"tools", tools}, {"tool_choice", "required"}, {"parallel_tool_calls", false}})
            .value();
    CHECK(read.choice == ToolChoice::Required);
    CHECK_FALSE(read.parallel);
    CHECK(json::parse(read.list) == tools);
    CHECK(json::parse(read.functions[0].parameters)["type"] == "object");
}

TEST_CASE("tools: the part that is wrong is named") {
    const json tools = json::array({tool("f")});
    CHECK(param({{"tools", 1}}) == "400 tools");
    CHECK(param({{"tools", json::array({1})}}) == "400 tools[0]");
    CHECK(param({{"tools", json::array({{{"type", "web"}}})}}) == "400 tools[0].type");
    CHECK(param({{"tools", json::array({{{"type", "function"}}})}}) == "400 tools[0].function");
    CHECK(param({{"tools", json::array({tool("")})}}) == "400 tools[0].function.name");
    CHECK(param({{"tools", json::array({tool("a b")})}}) == "400 tools[0].function.name");
    CHECK(param({{"tools", json::array({tool("f"), tool("f")})}}) == "400 tools[1].function.name");
    CHECK(param({{"tools", tools}, {"tool_choice", "x"}}) == "400 tool_choice");
    CHECK(param({{"tools", tools}, {"tool_choice", {{"function", {{"name", "x"}}}}}}) ==
          "400 tool_choice");
    CHECK(param({{"tool_choice", "required"}}) == "400 tool_choice");
    CHECK(param({{"tools", tools}, {"tool_choice", 3}}) == "400 tool_choice");
}

TEST_CASE("chat: calls, their results and thoughts reach the template in its form") {
    const json messages = json::array(
        {{{"role", "user"}, {"content", "Rain?"}},
         {{"role", "assistant"},
          {"content", nullptr},
          {"reasoning", "I look."},
          {"tool_calls",
           json::array({{{"id", "1"},
                         {"type", "function"},
                         {"index", 0},
                         {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}},
                        {{"id", "2"}, {"function", {{"name", "g"}, {"arguments", ""}}}}})}},
         {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "Yes"}},
         {{"role", "function"}, {"name", "g"}, {"content", "No"}}});
    const json read = json::parse(chat_request({{"messages", messages}}).value().messages);
    const json calls = read[1]["tool_calls"];
    CHECK(calls[0] == json{{"type", "function"},
                           {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}},
                           {"id", "1"}});
    CHECK(calls[1]["function"]["arguments"] == "{}");
    CHECK(read[1]["reasoning_content"] == "I look.");
    CHECK(read[2] == json{{"role", "tool"}, {"content", "Yes"}, {"tool_call_id", "1"}});
    CHECK(read[3] == json{{"role", "tool"}, {"content", "No"}, {"name", "g"}});
}

TEST_CASE("chat: the effort reaches the template, and none switches thoughts off") {
    const auto arguments = [](json body) {
        body["messages"] = json::array({{{"role", "user"}, {"content", "x"}}});
        return chat_request(body).value().arguments;
    };
    CHECK(arguments({{"reasoning_effort", "low"}}) == R"({"reasoning_effort":"low"})");
    CHECK(json::parse(arguments({{"reasoning_effort", "none"}}))["enable_thinking"] == false);
    CHECK(json::parse(arguments({{"reasoning_effort", "none"},
                                 {"chat_template_kwargs", {{"enable_thinking", true}}}})) ==
          json{{"enable_thinking", true}, {"reasoning_effort", "none"}});
}

TEST_CASE("tools: a template without a place for them has them as text") {
    json messages = json::array(
        {{{"role", "user"}, {"content", "Rain?"}},
         {{"role", "assistant"},
          {"content", "So."},
          {"tool_calls",
           json::array(
               {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}}})}},
         {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "Yes"}}});
    tools_as_text(messages, "[TOOLS]");
    REQUIRE(messages.size() == 4);
    CHECK(messages[0]["role"] == "system");
    CHECK(messages[0]["content"].get<std::string>().ends_with("[TOOLS]"));
    CHECK(messages[2] == json{{"role", "assistant"},
                              {"content", "So.\n{\"name\":\"f\",\"arguments\":{\"a\":1}}"}});
    CHECK(messages[3] == json{{"role", "user"}, {"content", "Result of f:\nYes"}});
    json with_system = json::array({{{"role", "system"}, {"content", "Be brief."}}});
    tools_as_text(with_system, "[TOOLS]");
    CHECK(with_system.size() == 1);
    CHECK(with_system[0]["content"].get<std::string>().starts_with("Be brief.\n\n"));
}

json grammar_of(const ReplyFormat& format, const ToolRequest& tools, bool control = false) {
    const GrammarSpec made = tool_grammar(format, tools, control);
    if (!made.any()) return nullptr;
    CHECK(made.kind == GrammarKind::StructuralTag);
    const json tag = json::parse(made.text);
    CHECK(tag["type"] == "structural_tag");
    return tag["format"];
}

TEST_CASE("tool grammar: free text with calls behind the tag, or calls alone") {
    ToolRequest tools{.functions = {{"f", R"({"type":"object"})"}, {"g", ""}}};
    const ReplyFormat hermes{.tools = ToolFormat::Hermes};
    const json free = grammar_of(hermes, tools);
    CHECK(free["type"] == "triggered_tags");
    CHECK(free["triggers"] == json::array({"<tool_call>"}));
    CHECK(free["tags"][0] == json{{"type", "tag"},
                                  {"begin", "<tool_call>\n{\"name\": \"f\", \"arguments\": "},
                                  {"content",
                                   {{"type", "json_schema"},
                                    {"json_schema", {{"type", "object"}}},
                                    {"max_whitespace_cnt", 2}}},
                                  {"end", "}\n</tool_call>"}});
    CHECK(free["tags"][1]["content"]["json_schema"] == json{{"type", "object"}});
    CHECK(grammar_of(hermes, tools, true) == nullptr);
    CHECK(grammar_of({.tools = ToolFormat::Mistral}, tools, true) == nullptr);
    const json named = grammar_of({.tools = ToolFormat::Mistral}, tools);
    CHECK(named["triggers"] == json::array({"[TOOL_CALLS]"}));
    CHECK(named["tags"][0]["begin"] == "[TOOL_CALLS][");
    CHECK(named["tags"][1]["begin"] == "[TOOL_CALLS]f");
    const json phi = grammar_of({.tools = ToolFormat::Phi4}, tools);
    CHECK(phi["tags"][0]["end"] == "]<|/tool_call|>");
    CHECK(phi["tags"].size() == 1);
    CHECK(grammar_of({.tools = ToolFormat::Llama3}, tools) == nullptr);
    CHECK(grammar_of(hermes, {}) == nullptr);
    tools.choice = ToolChoice::Required;
    tools.parallel = false;
    const json calls = grammar_of(hermes, tools);
    CHECK(calls["type"] == "tags_with_separator");
    CHECK(calls["at_least_one"] == true);
    CHECK(calls["stop_after_first"] == true);
    const json mistral = grammar_of({.tools = ToolFormat::Mistral}, tools);
    CHECK(mistral["elements"][0]["value"] == "[TOOL_CALLS][");
    CHECK(mistral["elements"][2]["value"] == "]");
    CHECK(grammar_of({.tools = ToolFormat::Json}, tools)["type"] == "tags_with_separator");
    CHECK(grammar_of({.tools = ToolFormat::Llama3}, tools)["tags"][0]["begin"] ==
          "{\"name\": \"f\", \"parameters\": ");
}

TEST_CASE("tool grammar: the looser one knows the names and any object") {
    const ToolRequest tools{.functions = {{"f", R"({"type":"object","required":["a"]})"}}};
    const GrammarSpec looser = looser_tool_grammar({.tools = ToolFormat::Hermes}, tools, false);
    const json tag = json::parse(looser.text)["format"]["tags"][0];
    CHECK(tag["begin"] == "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
    CHECK(tag["content"]["json_schema"] == json{{"type", "object"}});
}

TEST_CASE("tool grammar: a thought may come first, and ends if the prompt began it") {
    ToolRequest tools{.functions = {{"f", ""}}, .choice = ToolChoice::Required};
    const json may = grammar_of({.tools = ToolFormat::Hermes, .thoughts = true}, tools);
    CHECK(may["elements"][0]["type"] == "optional");
    const json must = grammar_of(
        {.tools = ToolFormat::Hermes, .thoughts = true, .begins_in_thought = true}, tools);
    CHECK(must["elements"][0]["type"] == "sequence");
    CHECK(must["elements"][0]["elements"][0]["end"] == "</think>");
}

TEST_CASE("answer grammar: a schema stands behind the thought, and beside calls that may be made") {
    const GrammarSpec schema{.kind = GrammarKind::JsonSchema, .text = R"({"type":"array"})"};
    const ReplyFormat plain{};
    CHECK(answer_grammar(plain, {}, schema, false) == schema);
    CHECK_FALSE(answer_grammar(plain, {}, {}, false).any());
    const json behind =
        json::parse(answer_grammar({.thoughts = true}, {}, schema, false).text)["format"];
    CHECK(behind["elements"][1]["json_schema"] == json{{"type", "array"}});
    ToolRequest tools{.functions = {{"f", ""}}};
    const ReplyFormat hermes{.tools = ToolFormat::Hermes};
    const json beside = json::parse(answer_grammar(hermes, tools, schema, false).text)["format"];
    CHECK(beside["type"] == "or");
    CHECK(beside["elements"][0]["type"] == "json_schema");
    CHECK(beside["elements"][1]["type"] == "tags_with_separator");
    const GrammarSpec regex{.kind = GrammarKind::Regex, .text = "a"};
    CHECK(answer_grammar(hermes, tools, regex, false) == regex);
    tools.choice = ToolChoice::Required;
    CHECK(answer_grammar(hermes, tools, schema, false) == tool_grammar(hermes, tools, false));
}

}  // namespace
}  // namespace paceline::serve
