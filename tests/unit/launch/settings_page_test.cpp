// docs/configuration.md lists the settings that the program reads.
#include "launch/config/settings_page.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/pipeline_config.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

std::string page() {
    std::ifstream file{testing::source_tree() + "/docs/configuration.md"};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("docs/configuration.md ends with the settings as the program lists them") {
    const std::string text = page();
    const std::size_t begin = text.find("\n## `extends`");
    REQUIRE(begin != std::string::npos);
    INFO("sed -i '/^## `extends`$/,$d' docs/configuration.md");
    INFO("build/release/paceline run --list-settings | tail -n +2 >> docs/configuration.md");
    CHECK(text.substr(begin) == settings_text());
}

TEST_CASE("the example of docs/configuration.md is a pipeline of two stages") {
    const std::string text = page();
    const std::string open = "```toml\n";
    const std::size_t begin = text.find(open);
    REQUIRE(begin != std::string::npos);
    const std::size_t end = text.find("```", begin + open.size());
    const Result<PipelineConfig> config = parse_pipeline_config(
        text.substr(begin + open.size(), end - begin - open.size()), "mine.toml");
    if (!config.ok()) FAIL(config.error().what);
    CHECK(config.value().stages.size() == 2);
}

TEST_CASE("every table that a file may have is on the page") {
    const Result<PipelineConfig> wrong = parse_pipeline_config("[nothing]\n", "x.toml");
    REQUIRE(!wrong.ok());
    const std::string& what = wrong.error().what;
    const std::string text = settings_text();
    std::istringstream known{what.substr(what.find("(known: ") + 8)};
    int tables = 0;
    for (std::string name; std::getline(known, name, ',');) {
        name.erase(0, name.find_first_not_of(' '));
        if (name.back() == ')') name.pop_back();
        const std::string title = name == "stage"     ? "[[stage]]"
                                  : name == "extends" ? name
                                                      : "[" + name + "]";
        CAPTURE(title);
        CHECK(text.find("\n## `" + title + "`\n") != std::string::npos);
        ++tables;
    }
    CHECK(tables == 10);
}
