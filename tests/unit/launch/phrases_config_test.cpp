// Phrases in a configuration: the settings that they need, and what is left without a model.
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/config/pipeline_config.hpp"
#include "tests/support/contains.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using paceline::testing::contains;

namespace {

const std::string kStages =
    "[[stage]]\nname = \"d\"\nrole = \"draft\"\n[[stage]]\nname = \"t\"\nrole = \"segment\"\n";
const std::string kPhrases = "[draft]\nsource = \"phrases+first-layers\"\n";
const std::string kSchedule = "[schedule]\nshape = \"tree\"\ncontroller = \"off\"\n";

DraftConfig draft_of(const std::string& text) {
    const Result<PipelineConfig> config = parse_pipeline_config(kStages + text, "x.toml");
    if (!config.ok()) FAIL(config.error().what);
    return *config.value().draft;
}

}  // namespace

TEST_CASE("phrases are around every model, each with the draft's own lookahead") {
    for (const char* source : {"phrases+first-layers", "phrases+skip-layers", "phrases+trained",
                               "phrases+model\"\nmodel = \"x.gguf"}) {
        CAPTURE(source);
        const DraftConfig draft = draft_of(
            std::string{"[draft]\nsource = \""} + source +
            "\"\nphrases = 2\nguess_window = 4\nngram = 4\nguesses = 3\npool = \"process\"\n" +
            kSchedule);
        const std::optional<PhraseOptions> options = draft.phrase_options();
        REQUIRE(options);
        CHECK(options->phrases == 2);
        CHECK(options->lookahead.window == 4);
        CHECK(options->lookahead.ngram == 4);
        CHECK(options->lookahead.guesses == 3);
        CHECK(draft.pool == PhrasePoolOf::Process);
        CHECK(draft.observes());
        CHECK(!draft.looks_up());
        CHECK(!draft.answers_at_once());
    }
    CHECK(!draft_of("[draft]\nsource = \"lookahead\"\ngamma = 9\n" + kSchedule + "rows_max = 64\n")
               .phrase_options());
}

TEST_CASE("what does not go with phrases is refused with file, key and value") {
    const struct {
        std::string text;
        std::string what;
    } cases[] = {
        {kPhrases + "[schedule]\nshape = \"tree\"\n",
         "needs [schedule] controller = \"guard\" or \"off\""},
        {kPhrases + "[schedule]\ncontroller = \"off\"\n", "needs [schedule] shape = \"tree\""},
        {kPhrases + "pace = \"ahead\"\n" + kSchedule, "pace = \"ahead\" must be \"sequential\""},
        {kPhrases + "adaptive = true\n" + kSchedule, "adaptive = true must be false"},
        {kPhrases + "thompson = true\n" + kSchedule, "thompson = true must be false"},
        {kPhrases + "tree = \"eagle2\"\n" + kSchedule, "tree = \"eagle2\" must be \"best-first\""},
        {kPhrases + "guess_window = 32\nngram = 16\n" + kSchedule,
         "guess_window = 32 does not fit"},
        {kPhrases + "gamma = 16\nphrases = 5\nngram = 5\n" + kSchedule,
         "gamma = 16, phrases = 5, ngram = 5: a batch of 37 rows, [schedule] rows_max is 33"},
        {kPhrases + "pool = \"all\"\n" + kSchedule, "pool = \"all\""},
        {"[draft]\nsource = \"first-layers\"\nphrases = 2\n", "phrases = 2 is for source"},
        {"[draft]\npool = \"process\"\n", "pool = \"process\" is for source"},
        {"[draft]\nsource = \"phrases\"\n" + kSchedule, "source = \"phrases\""},
    };
    for (const auto& one : cases) {
        CAPTURE(one.text);
        const Result<PipelineConfig> config = parse_pipeline_config(kStages + one.text, "x.toml");
        REQUIRE(!config.ok());
        CHECK(contains(config.error().what, "x.toml"));
        CHECK(contains(config.error().what, one.what));
    }
}

TEST_CASE("the method ouroboros has phrases with any draft, and none with prompt lookup") {
    PipelineConfig config = method_config("ouroboros").value();
    CHECK(source_text(*config.draft) == "phrases+trained");
    DraftConfig stand_in = *config.draft;
    stand_in.use_stand_in();
    CHECK(source_text(stand_in) == "phrases+first-layers");
    stand_in = *config.draft;
    stand_in.stand_in = {};
    stand_in.use_stand_in();
    CHECK(source_text(stand_in) == "prompt-lookup");
    CHECK(!stand_in.phrase_options());
    CHECK(use_draft_model(config, "small.gguf").ok());
    CHECK(source_text(*config.draft) == "phrases+model");
}
