// [draft] tree = "eagle2": the settings that it needs, what is refused, and its size.
#include <string>

#include <doctest/doctest.h>

#include "launch/config/pipeline_config.hpp"
#include "tests/support/contains.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using paceline::testing::contains;

namespace {

const std::string kStages =
    "[[stage]]\nname = \"d\"\nrole = \"draft\"\n[[stage]]\nname = \"t\"\nrole = \"segment\"\n";
const std::string kLevels = "[draft]\nsource = \"first-layers\"\ntree = \"eagle2\"\n";
const std::string kTree = "[schedule]\nshape = \"tree\"\n";
const std::string kWide = kTree + "rows_max = 64\n";

DraftConfig draft_of(const std::string& text) {
    const Result<PipelineConfig> config = parse_pipeline_config(kStages + text, "x.toml");
    if (!config.ok()) FAIL(config.error().what);
    return *config.value().draft;
}

std::string refusal(const std::string& text) {
    const Result<PipelineConfig> config = parse_pipeline_config(text, "x.toml");
    REQUIRE(!config.ok());
    CHECK(contains(config.error().what, "x.toml"));
    return config.error().what;
}

}  // namespace

TEST_CASE("EAGLE-2's tree has the size of its authors unless it is given") {
    const GrowthRule authors = draft_of(kLevels + kWide).growth;
    CHECK(authors.by_levels());
    CHECK(authors.gamma == 5);
    CHECK(authors.width == 10);
    CHECK(authors.children() == 10);
    CHECK(authors.proposed_max() == 59);
    const GrowthRule small =
        draft_of(kLevels + "gamma = 3\nwidth = 4\ntree_nodes = 20\n" + kWide).growth;
    CHECK(small.gamma == 3);
    CHECK(small.children() == 4);
    CHECK(small.proposed_max() == 20);
}

TEST_CASE("every source with a model has EAGLE-2's tree; a stand-in without one has none") {
    for (const char* source :
         {"first-layers", "prompt-lookup+first-layers", "skip-layers", "trained",
          "prompt-lookup+trained", "eagle", "model\"\nmodel = \"x.gguf"}) {
        CAPTURE(source);
        const std::string text =
            std::string{"[draft]\nsource = \""} + source + "\"\ntree = \"eagle2\"\n" + kWide;
        DraftConfig draft = draft_of(text);
        CHECK(draft.growth.by_levels());
        if (draft.model != DraftModelKind::Trained) continue;
        draft.use_stand_in();
        CHECK(draft.growth.by_levels() == draft.computes());
    }
}

TEST_CASE("what does not go with EAGLE-2's tree is refused with file, key and value") {
    const struct {
        std::string text;
        std::string what;
    } cases[] = {
        {kStages + "[draft]\ntree = \"eagle2\"\n" + kWide,
         "tree = \"eagle2\" needs a model to name runners-up"},
        {kStages + "[draft]\ntree = \"eagle\"\n", "tree = \"eagle\""},
        {kStages + kLevels + "rows_max = 64\n", "rows_max"},
        {kStages + kLevels, "needs [schedule] shape = \"tree\""},
        {kStages + kLevels + "pace = \"ahead\"\n" + kWide, "is for pace = \"sequential\""},
        {kStages + kLevels + "own_alternatives = 2\n" + kWide, "own_alternatives = 2 must be 0"},
        {kStages + kLevels + "width = 17\n" + kWide, "width = 17 must be at most 16"},
        {kStages + kLevels + "tree_nodes = 64\n" + kWide, "must be a whole number from 1 to 63"},
        {kStages + kLevels + kTree,
         "tree_nodes = 59: a batch of 60 rows with the root, [schedule] rows_max is 33"},
        {kStages + "[draft]\ntree_nodes = 20\n", "tree_nodes = 20 is for tree = \"eagle2\""},
        {"[[stage]]\nname = \"d\"\nrole = \"draft\"\n[[stage]]\nname = \"e\"\nrole = "
         "\"early-verify\"\n[[stage]]\nname = \"c\"\nrole = \"correct\"\n[[stage]]\nname = "
         "\"f\"\nrole = \"final-verify\"\n" +
             kLevels + "exit_alternatives = 2\n" + kWide,
         "is for a draft without a stage \"correct\""},
    };
    for (const auto& one : cases) {
        CAPTURE(one.text);
        CHECK(contains(refusal(one.text), one.what));
    }
}
