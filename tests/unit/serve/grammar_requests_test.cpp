#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/grammar/grammar_request.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

GrammarSpec spec_of(const json& body) {
    ApiResult<GrammarRequest> read = grammar_request(body);
    REQUIRE_MESSAGE(read, (read ? "" : read.error().message));
    return read.value().spec;
}
std::string refused(const json& body) {
    ApiResult<GrammarRequest> read = grammar_request(body);
    return read ? "accepted" : std::to_string(read.error().status) + " " + read.error().param;
}

TEST_CASE("grammars: a schema comes in the shapes of OpenAI, of llama.cpp and of vLLM") {
    const json schema{{"type", "object"}};
    const GrammarSpec wanted{.kind = GrammarKind::JsonSchema, .text = schema.dump()};
    for (const json& body : std::vector<json>{
             {{"response_format",
               {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}}}},
             {{"response_format", {{"type", "json_schema"}, {"schema", schema}}}},
             {{"response_format", {{"type", "json_object"}, {"schema", schema}}}},
             {{"json_schema", schema}},
             {{"structured_outputs", {{"json", schema}}}},
             {{"structured_outputs", {{"json", schema.dump()}, {"regex", nullptr}}}}}) {
        CAPTURE(body.dump());
        CHECK(spec_of(body) == wanted);
    }
    CHECK(spec_of({{"response_format", {{"type", "json_object"}}}}).kind == GrammarKind::Json);
    CHECK(spec_of({{"structured_outputs", {{"json_object", true}}}}).kind == GrammarKind::Json);
}

TEST_CASE("grammars: rules, expressions, choices and tags are told apart") {
    CHECK(spec_of({{"grammar", "root ::= \"a\""}}) ==
          GrammarSpec{.kind = GrammarKind::Ebnf, .text = "root ::= \"a\""});
    CHECK(spec_of({{"structured_outputs", {{"regex", "a+"}}}}) ==
          GrammarSpec{.kind = GrammarKind::Regex, .text = "a+"});
    CHECK(spec_of({{"structured_outputs", {{"choice", json::array({"yes", "\"no\""})}}}}) ==
          GrammarSpec{.kind = GrammarKind::Ebnf, .text = R"(root ::= "yes" | "\"no\"")"});
    const json tag{{"type", "structural_tag"}, {"format", {{"type", "any_text"}}}};
    CHECK(spec_of({{"response_format", tag}}) ==
          GrammarSpec{.kind = GrammarKind::StructuralTag, .text = tag.dump()});
    CHECK(spec_of({{"structured_outputs", {{"structural_tag", tag.dump()}}}}).text == tag.dump());
}

TEST_CASE("grammars: what asks for nothing is none") {
    for (const json& body : std::vector<json>{json::object(),
                                              {{"response_format", nullptr}},
                                              {{"response_format", {{"type", "text"}}}},
                                              {{"grammar", ""}},
                                              {{"structured_outputs", json::object()}},
                                              {{"guided_json", nullptr}}})
        CHECK_FALSE(spec_of(body).any());
}

TEST_CASE("grammars: the part that is wrong is named, and so is the new form of an old field") {
    CHECK(refused({{"response_format", 3}}) == "400 response_format");
    CHECK(refused({{"response_format", {{"type", "xml"}}}}) == "400 response_format.type");
    CHECK(refused({{"response_format", {{"type", "json_schema"}}}}) ==
          "400 response_format.json_schema");
    CHECK(refused({{"json_schema", 3}}) == "400 json_schema");
    CHECK(refused({{"grammar", json::array({1})}}) == "400 grammar");
    CHECK(refused({{"structured_outputs", {{"choice", json::array({1})}}}}) ==
          "400 structured_outputs.choice[0]");
    CHECK(refused({{"structured_outputs", {{"regex", "a"}, {"grammar", "b"}}}}) ==
          "400 structured_outputs");
    CHECK(refused({{"grammar", "root ::= x"}, {"json_schema", {{"type", "object"}}}}) ==
          "400 grammar");
    for (const char* name : {"json", "regex", "choice", "grammar"}) {
        const std::string old = std::string{"guided_"} + name;
        ApiResult<GrammarRequest> read = grammar_request({{old, "x"}});
        REQUIRE_FALSE(read);
        CHECK(read.error().param == old);
        CHECK(read.error().message.find(std::string{"structured_outputs\": {\""} + name) !=
              std::string::npos);
    }
}

}  // namespace
}  // namespace paceline::serve
