#include <fstream>
#include <span>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "model/weights/sha256.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/templates/render.hpp"

namespace paceline {
namespace {

std::string folder() {
    return testing::fixtures() + "/templates/";
}

std::string read(const std::string& name) {
    std::ifstream file{folder() + name};
    REQUIRE_MESSAGE(file.good(), name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("templates of 20 model families give what jinja2 gives, for 50 conversations each") {
    const auto conversations = nlohmann::ordered_json::parse(read("conversations.json"));
    const auto expected = nlohmann::json::parse(read("expected.json"));
    REQUIRE(conversations.size() == 50);
    REQUIRE(expected.size() >= 20);
    for (const auto& [name, digests] : expected.items()) {
        const std::string source = read(name + ".jinja");
        for (std::size_t i = 0; i < conversations.size(); ++i) {
            CAPTURE(name);
            CAPTURE(i);
            const Result<jinja::Text> text = testing::render(source, conversations[i].dump());
            std::string got = "raises";
            if (text)
                got = sha256_text(std::as_bytes(std::span{text.value().bytes()})).substr(0, 16);
            CHECK(got == digests[i].get<std::string>());
        }
    }
}

}  // namespace paceline
