// Sources without a model in a configuration: which settings they need, what is left when a part or
// the datastore is missing, and what the stage "correct" gets of them.
#include <fstream>

#include <doctest/doctest.h>

#include "actors/decoding/guesses/datastore.hpp"
#include "launch/config/methods.hpp"
#include "launch/placement/method_fit.hpp"
#include "launch/placement/pretrained.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

using namespace paceline;        // NOLINT(google-build-using-namespace): a test file
using namespace paceline::test;  // NOLINT(google-build-using-namespace): test helpers
using paceline::testing::contains;
using paceline::testing::fixtures;
using paceline::testing::open_fixture;

namespace {

const std::string kStages =
    "[[stage]]\nname = \"d\"\nrole = \"draft\"\n[[stage]]\nname = \"t\"\nrole = \"segment\"\n";
const std::string kOff = "[schedule]\ncontroller = \"off\"\n";

Result<PipelineConfig> parsed(const std::string& source, const std::string& rest = "") {
    return parse_pipeline_config(kStages + "[draft]\nsource = \"" + source + "\"\n" + rest,
                                 "x.toml");
}

std::string refusal(const std::string& source, const std::string& rest) {
    const Result<PipelineConfig> config = parsed(source, rest);
    REQUIRE(!config.ok());
    CHECK(contains(config.error().what, "x.toml"));
    return config.error().what;
}

PipelineConfig accepted(const std::string& source, const std::string& rest = "") {
    Result<PipelineConfig> config = parsed(source, rest);
    if (!config.ok()) FAIL(config.error().what);
    return std::move(config).value();
}

ResolvedConfig resolved(PipelineConfig config, const ModelFile& target) {
    Result<ResolvedConfig> found = use_parts(std::move(config), {}, target);
    if (!found.ok()) FAIL(found.error().what);
    return std::move(found).value();
}

/// What `config` drafts with where there are no trained parts.
std::string drafts_with(PipelineConfig config, const ModelFile& target) {
    return source_text(*resolved(std::move(config), target).config.draft);
}

std::string parts_of(const ResolvedConfig& found) {
    return parts_text(found, place(found.config, 2, {0}).value());
}

}  // namespace

TEST_CASE("a draft model takes the place of whatever stood in for it, and only there") {
    PipelineConfig pearl = method_config("pearl").value();
    CHECK(use_draft_model(pearl, "small.gguf").ok());
    CHECK(source_text(*pearl.draft) == "model");
    PipelineConfig both = method_config("prompt-lookup+draft").value();
    CHECK(use_draft_model(both, "small.gguf").ok());
    CHECK(source_text(*both.draft) == "prompt-lookup+model");
    CHECK(both.draft->model_file == "small.gguf");
    CHECK(parts_text({both}, place(both, 30, {0}).value()).empty());
    PipelineConfig none = method_config("adadecode").value();
    CHECK(contains(use_draft_model(none, "x").error().what, "no stage with role = \"draft\""));
}

TEST_CASE("sources that observe rows need the settings under which these are verified") {
    for (const char* source :
         {"jacobi", "prompt-lookup+jacobi", "lookahead", "prompt-lookup+lookahead",
          "lookahead+first-layers", "lookahead+skip-layers", "lookahead+trained"}) {
        CAPTURE(source);
        const bool tree = std::string{source} != "jacobi";
        const std::string wide = kOff + "shape = \"tree\"\nrows_max = 64\n";
        (void)accepted(source, wide);
        CHECK(contains(refusal(source, "[schedule]\nshape = \"tree\"\nrows_max = 64\n"),
                       "needs [schedule] controller = \"guard\" or \"off\""));
        if (tree) {
            CHECK(contains(refusal(source, kOff + "rows_max = 64\n"),
                           "needs [schedule] shape = \"tree\""));
        }
    }
    const std::string wide = kOff + "shape = \"tree\"\nrows_max = 64\n";
    CHECK(contains(refusal("jacobi", "adaptive = true\n" + kOff), "adaptive = true"));
    CHECK(contains(refusal("lookahead", "adaptive = true\n" + wide), "adaptive = true"));
    CHECK(contains(refusal("jacobi", "thompson = true\n" + kOff), "thompson = true"));
    CHECK(contains(refusal("lookahead", "thompson = true\n" + wide), "thompson = true"));
    CHECK(contains(refusal("jacobi", "confidence_min = 0.5\n" + kOff), "confidence_min = 0.5"));
    CHECK(contains(refusal("lookahead", wide + "reach_min = 0.1\n"), "[schedule] reach_min = 0.1"));
    CHECK(
        contains(refusal("lookahead+first-layers", "adaptive = true\n" + wide), "adaptive = true"));
    (void)accepted("lookahead+first-layers", "confidence_min = 0.4\n" + wide);
}

TEST_CASE("without a datastore what is beside it drafts, and the stand-in where nothing is") {
    const ModelFile target = open_fixture("tiny-chat");
    CHECK(drafts_with(accepted("datastore"), target) == "prompt-lookup");
    CHECK(drafts_with(accepted("datastore", "stand_in = \"first-layers\"\n"), target) ==
          "first-layers");
    CHECK(drafts_with(accepted("prompt-lookup+datastore"), target) == "prompt-lookup");
    CHECK(drafts_with(accepted("datastore+first-layers"), target) == "first-layers");
    CHECK(drafts_with(accepted("datastore+skip-layers"), target) == "skip-layers");
    // The trained draft is missing as well.
    CHECK(drafts_with(accepted("datastore+trained", "stand_in = \"skip-layers\"\n"), target) ==
          "skip-layers");
    PipelineConfig rest = method_config("rest").value();
    REQUIRE(use_draft_model(rest, fixtures() + "/models/tiny-chat.gguf").ok());
    const ResolvedConfig with_model = resolved(rest, target);
    CHECK(source_text(*with_model.config.draft) == "model");
    CHECK(contains(with_model.parts.files.draft, "tiny-chat.gguf"));
    CHECK(with_model.parts.store_missing);
    CHECK(contains(parts_of(with_model), "names no file; the source is \"model\""));
    const ResolvedConfig alone = resolved(method_config("rest").value(), target);
    CHECK(parts_use(alone, place(alone.config, 2, {0}).value()) == PartsUse::StandIns);
}

TEST_CASE("without a trained draft its stand-in goes on below guesses and datastore, which stay") {
    const ModelFile target = open_fixture("tiny-chat");
    const TestFolder folder;
    const std::string file = (folder.path() / "texts.store").string();
    std::ofstream{file, std::ios::binary}
        << datastore_bytes(std::vector<TokenId>{1, kStoreSeparator},
                           std::vector<std::uint32_t>{0, 1}, target.tokenizer());
    const std::string store = "datastore = \"" + file + "\"\n";
    const std::pair<const char*, const char*> cases[] = {
        {"prompt-lookup", "prompt-lookup+datastore"},
        {"first-layers", "datastore+first-layers"},
        {"prompt-lookup+first-layers", "datastore+first-layers"},
        {"skip-layers", "datastore+skip-layers"}};
    for (const auto& [stand_in, source] : cases) {
        CAPTURE(stand_in);
        const ResolvedConfig found = resolved(
            accepted("datastore+trained", store + "stand_in = \"" + stand_in + "\"\n"), target);
        CHECK(source_text(*found.config.draft) == source);
        CHECK(!found.parts.store_missing);
        CHECK(found.parts.draft_missing);
        CHECK(contains(parts_of(found), "no trained draft for this model"));
    }
    const std::string wide = kOff + "shape = \"tree\"\nrows_max = 64\n";
    const ResolvedConfig guesses =
        resolved(accepted("lookahead+trained", "stand_in = \"skip-layers\"\n" + wide), target);
    CHECK(source_text(*guesses.config.draft) == "lookahead+skip-layers");
    CHECK(contains(parts_of(resolved(accepted("lookahead+trained", wide), target)),
                   "no trained draft for this model: guesses from the target's own tokens"));
}

TEST_CASE("the stage \"correct\" gets no source that observes rows") {
    const std::pair<const char*, const char*> cases[] = {
        {"jacobi", "prompt-lookup"},
        {"lookahead", "prompt-lookup"},
        {"prompt-lookup+lookahead", "prompt-lookup"},
        {"lookahead+first-layers", "first-layers"},
        {"prompt-lookup", "prompt-lookup"},
        {"datastore+first-layers", "datastore+first-layers"}};
    const std::string wide = kOff + "shape = \"tree\"\nrows_max = 64\n";
    for (const auto& [source, left] : cases) {
        CAPTURE(source);
        DraftConfig draft = *accepted(source, wide).draft;
        draft.observe_nothing();
        CHECK(source_text(draft) == left);
        CHECK(!draft.observes());
    }
}

TEST_CASE("a datastore is read by jobs, guesses and lookup answer at once") {
    const std::string wide = kOff + "shape = \"tree\"\nrows_max = 64\n";
    CHECK(accepted("prompt-lookup", wide).draft->answers_at_once());
    CHECK(accepted("lookahead", wide).draft->answers_at_once());
    CHECK(!accepted("datastore", wide).draft->answers_at_once());
    CHECK(!accepted("prompt-lookup+datastore", wide).draft->answers_at_once());
    CHECK(!accepted("first-layers", wide).draft->answers_at_once());
}

TEST_CASE("what proposals do with grammars is a key of the draft, whatever its source") {
    CHECK(accepted("prompt-lookup").draft->grammar == GrammarUse::MaskedForced);
    const std::pair<const char*, GrammarUse> cases[] = {{"masked+forced", GrammarUse::MaskedForced},
                                                        {"masked", GrammarUse::Masked},
                                                        {"off", GrammarUse::Off}};
    for (const char* source : {"prompt-lookup", "first-layers", "datastore"}) {
        for (const auto& [text, use] : cases) {
            CAPTURE(text);
            const std::string line = "grammar = \"" + std::string{text} + "\"\n";
            CHECK(accepted(source, line).draft->grammar == use);
        }
    }
    CHECK(contains(refusal("prompt-lookup", "grammar = \"forced\"\n"), "grammar = \"forced\""));
}
