#include "launch/api/json_reader.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

std::string refusal(std::string_view text) {
    ApiResult<nlohmann::ordered_json> read = read_json(text);
    return read ? std::string{} : read.error().message;
}

TEST_CASE("json: an object with too many keys is refused, its members are kept in order") {
    std::string text = "{\"b\": 0";
    for (std::size_t i = 1; i < kJsonKeysMax; ++i) text += ", \"a" + std::to_string(i) + "\": 0";
    auto read = read_json(text + "}");
    REQUIRE(read);
    CHECK(read.value().begin().key() == "b");
    CHECK(read_json(text + ", \"c\": 0}").error().message.find("4096 keys") != std::string::npos);
}

TEST_CASE("json reader: what is read equals what the library reads") {
    const std::string text =
        R"({"a": [1, -2, 2.5, true, null, "x\u00e9"], "b": {"c": {}, "d": []}, "e": 18446744073709551615})";
    CHECK(read_json(text).value() == nlohmann::ordered_json::parse(text));
    CHECK(read_json("3").value() == 3);
    CHECK_FALSE(read_json_object("[]"));
    CHECK_FALSE(read_json_object("3"));
}

TEST_CASE("json reader: a key that an object has twice is refused, in another object it is not") {
    CHECK(refusal(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})").empty());
    CHECK(refusal(R"({"a": 1, "a": 1})") == "the body has the key 'a' twice in one object");
    CHECK(refusal(R"({"b": [{"a": 1, "a": 1}]})") != "");
    // An escape does not hide it.
    CHECK(refusal(R"({"a": 1, "\u0061": 1})") != "");
}

TEST_CASE("json reader: depth is limited") {
    const auto nested = [](std::size_t depth) {
        return std::string(depth, '[') + std::string(depth, ']');
    };
    CHECK(refusal(nested(kJsonDepthMax)).empty());
    CHECK(refusal(nested(kJsonDepthMax + 1)) == "the body is nested deeper than 32 levels");
    CHECK(refusal(std::string(1'000'000, '[')) == "the body is nested deeper than 32 levels");
}

TEST_CASE("json reader: what is no JSON is refused with a place, and never quoted") {
    for (const char* text : {"", "{", "[1,]", "{\"secret\": secret}", "nan", "[1e999]", "\"\xff\"",
                             "\"\\ud800\"", "{} {}", "01"}) {
        CAPTURE(text);
        CHECK(refusal(text).find("is not valid JSON") != std::string::npos);
        CHECK(refusal(text).find("secret") == std::string::npos);
    }
}

}  // namespace
}  // namespace paceline::serve
