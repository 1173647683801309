// Which JSON schemas are refused before they reach the library, and with which words.
#include "model/grammar/schema_check.hpp"

#include <string>

#include <doctest/doctest.h>

namespace paceline {
namespace {

std::string refusal(std::string_view schema) {
    const Status checked = check_schema(schema);
    return checked.ok() ? std::string{} : checked.error().what;
}

TEST_CASE("schemas that can be enforced pass") {
    for (
        const char* schema : {
            "true",
            "{}",
            R"({"type":"object","properties":{"not":{"type":"string"}},"required":["not"]})",
            R"({"type":"object","anyOf":[{"type":"object"},{"type":"object"}]})",
            R"({"oneOf":[{"const":1},{"const":2}],"title":"a","description":"b"})",
            R"({"allOf":[{"type":"string"}]})",
            R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"null"},"never used":{"not":{}}}})",
            R"({"$defs":{"n":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"}]}},"$ref":"#/$defs/n"})",
            R"({"enum":[{"not":1,"$ref":"x"}]})",
            R"({"type":"string","pattern":"^[a-z]\\d+\\.\\\\t$"})",
            R"({"type":"array","uniqueItems":false})",
        }) {
        CAPTURE(schema);
        CHECK(refusal(schema) == "");
    }
}

TEST_CASE("what the library would ignore is refused with its place") {
    struct Case {
        const char* schema;
        const char* words;
    };
    for (const Case& each : {
             Case{R"({"properties":{"a":{"not":{}}}})", "/properties/a: \"not\" is not supported"},
             Case{R"({"items":{"if":{}}})", "/items: \"if\""},
             Case{R"({"prefixItems":[{},{"contains":{}}]})", "/prefixItems/1: \"contains\""},
             Case{R"({"type":"array","uniqueItems":true})", "the whole schema: \"uniqueItems\""},
             Case{R"({"type":"string","anyOf":[{"maxLength":2}]})", "\"type\" beside \"anyOf\""},
             Case{R"({"allOf":[{},{}]})", "\"allOf\" of several"},
             Case{R"({"$ref":"#/$defs/a","maxLength":2,"$defs":{"a":{}}})",
                  "\"maxLength\" beside \"$ref\""},
             Case{R"({"$ref":"#/$defs/b"})", "there is no #/$defs/b"},
             Case{R"({"$ref":"http://a/b"})", "only references"},
             Case{R"({"$ref":"#a"})", "only references"},
             Case{R"({"$ref":"#/~2"})", "no JSON pointer"},
             Case{R"({"$ref":"#/$defs/a","$defs":{"a":{"items":{"not":{}}}}})",
                  "/$defs/a/items: \"not\""},
             Case{R"({"type":"object","required":["a"]})", "\"a\" is not among"},
             Case{R"({"type":"string","pattern":"a\\tb"})", "control character \\t"},
             Case{R"({"type":"string","pattern":"\\x1F"})", "control character \\x"},
             Case{R"({"type":)", "line 1, column"},
         }) {
        CAPTURE(each.schema);
        const std::string said = refusal(each.schema);
        CAPTURE(said);
        CHECK(said.find(each.words) != std::string::npos);
    }
}

TEST_CASE("a schema that is nested without end is refused") {
    std::string deep;
    for (int i = 0; i < 1000; ++i) deep += R"({"items":)";
    deep += "{}" + std::string(1000, '}');
    CHECK(refusal(deep).find("nested") != std::string::npos);
}

TEST_CASE("the schemas inside a structural tag are checked too") {
    const auto tag = [](const char* schema) {
        return R"({"type":"structural_tag","format":{"type":"tag","begin":"<a>","content":{"type":"json_schema","json_schema":)" +
               std::string{schema} + R"(},"end":"</a>"}})";
    };
    CHECK(check_schemas_of_tag(tag(R"({"type":"object"})")).ok());
    const Status refused = check_schemas_of_tag(tag(R"({"not":{}})"));
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().what.find("/format/content/json_schema: \"not\"") != std::string::npos);
}

}  // namespace
}  // namespace paceline
