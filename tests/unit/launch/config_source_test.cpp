// extends: a configuration that holds its differences from another one.
#include "launch/config/config_source.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/config_text.hpp"
#include "launch/config/methods.hpp"
#include "launch/config/pipeline_config.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/unit/launch/config_of_file.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using paceline::test::TestFolder;
using paceline::testing::config_of_file;
using paceline::testing::contains;

namespace {

PipelineConfig config_of(const std::string& text) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "mine.toml");
    if (!config.ok()) FAIL(config.error().what);
    return std::move(config).value();
}

Error error_of(const Result<PipelineConfig>& config) {
    REQUIRE(!config.ok());
    return config.error();
}

std::string refused(const std::string& text) {
    const Error error = error_of(parse_pipeline_config(text, "mine.toml"));
    CHECK(error.code == Errc::BadArgument);
    return error.what;
}

}  // namespace

TEST_CASE("a file has the settings of the method that it extends, except for its own keys") {
    const PipelineConfig pearl = method_config("pearl").value();
    const PipelineConfig mine = config_of(
        "extends = \"pearl\"\n[draft]\ngamma = 7\n[schedule]\nbatches_in_flight = 2\n"
        "[supervision]\nrestarts_max = 9\n");
    CHECK(mine.file == "mine.toml");
    CHECK(mine.name == "pearl");
    CHECK(mine.stages.size() == 2);
    CHECK(mine.draft->growth.gamma == 7);
    CHECK(mine.draft->growth.pace == pearl.draft->growth.pace);
    CHECK(mine.draft->size == pearl.draft->size);
    CHECK(mine.schedule.options.verify_reach_min == pearl.schedule.options.verify_reach_min);
    CHECK(mine.schedule.options.batches_in_flight_max == 2);
    CHECK(mine.supervision.restarts_max == 9);
}

TEST_CASE("the stages of a file take the place of all stages of the one that it extends") {
    const std::string stages =
        "[[stage]]\nname = \"d\"\nrole = \"draft\"\n"
        "[[stage]]\nname = \"t\"\nrole = \"segment\"\nsegments = 3\n";
    const PipelineConfig mine = config_of("extends = \"pearl\"\n" + stages);
    REQUIRE(mine.stages.size() == 4);
    CHECK(mine.stages.front().name == "d");
    CHECK(mine.stages.back().name == "t-3");
    CHECK(mine.draft->growth.gamma == method_config("pearl").value().draft->growth.gamma);
}

TEST_CASE("a list of a file takes the place of the whole list of the one that it extends") {
    const TestFolder folder;
    folder.file("base.toml", "extends = \"pearl\"\n[supervision]\nbackoff_ms = [1, 2, 3]\n");
    const std::string mine =
        folder.file("mine.toml", "extends = \"base.toml\"\n[supervision]\nbackoff_ms = [4]\n");
    CHECK(config_of_file(mine).value().supervision.backoff.size() == 1);
}

TEST_CASE("a file extends another one relative to itself, which extends a method") {
    const TestFolder folder;
    folder.file("base/draft.toml", "extends = \"fold\"\n[draft]\ngamma = 5\nwidth = 2\n");
    const std::string mine =
        folder.file("mine.toml", "extends = \"base/draft.toml\"\n[draft]\nwidth = 3\n");
    const std::string deep = folder.file(
        "deep/deeper.toml", "extends = \"../mine.toml\"\n[pipeline]\nname = \"deep\"\n");
    const PipelineConfig config = config_of_file(deep).value();
    CHECK(config.name == "deep");
    CHECK(config.draft->growth.gamma == 5);
    CHECK(config.draft->growth.width == 3);
    CHECK(config.exit->options.sends_candidates);
    CHECK(config_of_file(mine).value().name == "fold");
}

TEST_CASE("an error names the file in which the key stands") {
    const TestFolder folder;
    const std::string base =
        folder.file("base.toml", "extends = \"pearl\"\n\n[draft]\ngamma = 99\n");
    const std::string mine =
        folder.file("mine.toml", "extends = \"base.toml\"\n[draft]\nwidth = 2\n");
    CHECK(contains(error_of(config_of_file(mine)).what,
                   folder.path("base.toml") + ":4: [draft] gamma = 99 must be"));
    folder.file("base.toml", "extends = \"pearl\"\n[draft]\ngama = 9\n");
    CHECK(contains(error_of(config_of_file(mine)).what,
                   folder.path("base.toml") + ":3: [draft] gama = 9 is not a known key"));
    folder.file("base.toml", "extends = \"pearl\"\ndraft = 3\n");
    CHECK(contains(error_of(config_of_file(mine)).what,
                   folder.path("base.toml") + ":2: draft = 3 must be a table: [draft]"));
    folder.file("base.toml", "extends = \"pearl\"\n[draft\n");
    CHECK(contains(error_of(config_of_file(mine)).what, folder.path("base.toml") + ":2: "));
    // A key that a method has and that the file's own source does not take.
    CHECK(contains(refused("extends = \"pearl-layerskip\"\n[draft]\nsource = \"trained\"\n"),
                   "configs/pearl-layerskip.toml:"));
    CHECK(contains(refused("extends = \"pearl\"\n[draft]\nsource = \"model\"\n"),
                   "mine.toml:2: [draft] model is missing"));
}

TEST_CASE("what extends names is a method, or a file that can be read") {
    const std::string unknown = refused("\nextends = \"fodl\"\n");
    CHECK(contains(unknown, "mine.toml:2: extends = \"fodl\" is not a method"));
    CHECK(contains(unknown, "did you mean 'fold'?"));
    CHECK(contains(refused("extends = 3\n"), "mine.toml:1: extends = 3 must be the name"));
    CHECK(contains(refused("extends = \"\"\n"), "must be the name"));
    CHECK(contains(refused("extends = [\"fold\", \"pearl\"]\n"), "must be the name"));
    CHECK(contains(refused("[extends]\n"), "must be the name"));
    // The text of a method, or of a command, has no folder.
    CHECK(contains(refused("extends = \"./fold.toml\"\n"), "must be the name of a method"));
    const TestFolder folder;
    const std::string mine = folder.file("mine.toml", "extends = \"base.toml\"\n");
    const Error missing = error_of(config_of_file(mine));
    CHECK(missing.code == Errc::BadFile);
    CHECK(contains(missing.what, mine + ":1: extends = \"base.toml\" cannot be read: "));
    CHECK(contains(missing.what, folder.path("base.toml")));
}

TEST_CASE("files that extend one another in a circle, or too many of them, are refused") {
    const TestFolder folder;
    const std::string one = folder.file("one.toml", "extends = \"two.toml\"\n");
    folder.file("two.toml", "\nextends = \"deep/../one.toml\"\n");
    folder.file("deep/unused.toml", "");
    CHECK(contains(error_of(config_of_file(one)).what,
                   folder.path("two.toml") + ":2: extends = \"deep/../one.toml\" closes a circle"));
    const std::string self = folder.file("self.toml", "extends = \"self.toml\"\n");
    CHECK(contains(error_of(config_of_file(self)).what, "closes a circle"));
    const auto name = [](std::size_t i) { return "file-" + std::to_string(i) + ".toml"; };
    folder.file(name(1), method_source("pearl").value().toml);
    for (std::size_t i = 2; i <= kConfigFilesMax + 1; ++i)
        folder.file(name(i), "extends = \"" + name(i - 1) + "\"\n");
    CHECK(config_of_file(folder.path(name(kConfigFilesMax))).ok());
    const std::string what = error_of(config_of_file(folder.path(name(kConfigFilesMax + 1)))).what;
    CHECK(contains(what, folder.path("file-2.toml:1: extends = \"file-1.toml\" is one too many")));
}

TEST_CASE("a draft of another source than the one it extends has no size of a trained draft") {
    REQUIRE(method_config("pearl").value().draft->size == DraftSize::Deep);
    CHECK(method_config("pearl-layerskip").value().draft->size == DraftSize::Small);
}

TEST_CASE("the printed configuration of a method stands alone and is the method") {
    for (const Method& method : methods()) {
        CAPTURE(std::string{method.name});
        const std::string text = config_text(method_source(method.name).value()).value();
        CHECK(!contains(text, "extends"));
        CHECK(text.starts_with("[pipeline]\nname = \"" + std::string{method.name} + "\"\n"));
        CHECK(config_text({text, "printed.toml"}).value() == text);
    }
    const std::string lockstep = config_text(method_source("fold-lockstep").value()).value();
    CHECK(contains(lockstep, "\n[draft]\nsource = \"trained\"\nsize = \"deep\"\n"));
    CHECK(contains(lockstep, "exit_alternatives = 4\nbranch_budget = 192\n"));
    CHECK(contains(lockstep, "lockstep = true\n"));
    CHECK(!config_text({"[draft]\ngama = 3\n", "x.toml"}).ok());
}

TEST_CASE("every method is in one family of --list-methods") {
    const std::string table = families_table();
    for (const Method& method : methods()) {
        CAPTURE(std::string{method.name});
        const std::string name = " " + std::string{method.name};
        CHECK(contains(table, name + ",") != contains(table, name + "\n"));
        CHECK(contains(table, std::string{method.family} + ": "));
    }
    CHECK(contains(table, "\n    fold, fold-adaspeed,"));
    CHECK(contains(table, "    plain, autoregressive, autoregressive-segments\n"));
}
