// The TOML files of configs/: what they mean, and how wrong ones are refused.
#include "launch/pipeline_config.hpp"

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr const char* kTwoSegments = R"(
[pipeline]
name = "two"
[[stage]]
name = "front"
role = "segment"
layers = [0, 10]
cores = [1]
[[stage]]
name = "back"
role = "segment"
layers = [10, 30]
)";

std::string error_of(const std::string& text) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    REQUIRE(!config.ok());
    return config.error().what;
}

std::string resolve_error_of(const std::string& text, int layers) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    REQUIRE(config.ok());
    Result<std::vector<PlacedStage>> placed = resolve(config.value(), layers, {0, 1});
    REQUIRE(!placed.ok());
    return placed.error().what;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::string segment(const std::string& name, const std::string& rest) {
    return "[[stage]]\nname = \"" + name + "\"\nrole = \"segment\"\n" + rest + "\n";
}

}  // namespace

TEST_CASE("two segments come out with their layers and cores, in order") {
    Result<PipelineConfig> config = parse_pipeline_config(kTwoSegments, "two.toml");
    REQUIRE(config.ok());
    CHECK(config.value().name == "two");
    Result<std::vector<PlacedStage>> placed = resolve(config.value(), 30, {0, 1});
    REQUIRE(placed.ok());
    REQUIRE(placed.value().size() == 2);
    CHECK(placed.value()[0].layers == LayerRange{0, 10});
    CHECK(placed.value()[0].cores == std::vector{1});
    CHECK(placed.value()[0].threads == 1);
    CHECK(placed.value()[1].layers == LayerRange{10, 30});
    CHECK(placed.value()[1].cores == std::vector{0, 1});
    CHECK(placed.value()[1].threads == 2);
}

TEST_CASE("every file in configs/ can be read, and fits models of 4 to 80 layers on one core") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(PACELINE_SOURCE_DIR "/configs")) {
        if (entry.path().extension() != ".toml") continue;
        CAPTURE(entry.path().string());
        ++files;
        Result<PipelineConfig> config = read_pipeline_config(entry.path().string());
        if (!config.ok()) FAIL(config.error().what);
        for (const int layers : {4, 5, 30, 80}) {
            Result<std::vector<PlacedStage>> placed = resolve(config.value(), layers, {0});
            if (!placed.ok()) FAIL(placed.error().what);
        }
    }
    CHECK(files >= 4);
}

TEST_CASE("automatic layers are an even share that leaves nothing out") {
    const std::string text =
        segment("a", "") + segment("b", "layers = \"auto\"") + segment("c", "");
    Result<PipelineConfig> config = parse_pipeline_config(text, "auto.toml");
    REQUIRE(config.ok());
    for (int layers = 3; layers < 100; ++layers) {
        Result<std::vector<PlacedStage>> placed = resolve(config.value(), layers, {0});
        REQUIRE(placed.ok());
        int next = 0;
        for (const PlacedStage& stage : placed.value()) {
            CHECK(stage.layers.first == next);
            const int share = stage.layers.last - stage.layers.first;
            CHECK(share >= layers / 3);
            CHECK(share <= layers / 3 + 1);
            next = stage.layers.last;
        }
        CHECK(next == layers);
    }
}

TEST_CASE("fractions meet at the same layer whatever the model's depth") {
    const std::string text =
        segment("a", "layers = [0.0, 0.33]") + segment("b", "layers = [0.33, 1.0]");
    Result<PipelineConfig> config = parse_pipeline_config(text, "parts.toml");
    REQUIRE(config.ok());
    for (int layers = 2; layers < 100; ++layers) {
        CHECK(resolve(config.value(), layers, {0}).ok());
    }
}

TEST_CASE("a gap, an overlap, a missing end and layers past the end are named with both numbers") {
    CHECK(contains(
        resolve_error_of(segment("a", "layers = [0, 10]") + segment("b", "layers = [12, 30]"), 30),
        "\"b\": layers [12, 30] leave a gap after \"a\", which ends at layer 10"));
    CHECK(contains(
        resolve_error_of(segment("a", "layers = [0, 10]") + segment("b", "layers = [9, 30]"), 30),
        "\"b\": layers [9, 30] overlap with \"a\""));
    CHECK(contains(resolve_error_of(segment("a", "layers = [0, 29]"), 30),
                   "end at layer 29, the model has 30"));
    CHECK(contains(resolve_error_of(segment("a", "layers = [0, 31]"), 30),
                   "end past the model's 30 layers"));
    CHECK(contains(resolve_error_of(segment("a", "layers = [1, 30]"), 30),
                   "do not start at layer 0"));
}

TEST_CASE("more segments than layers is an error, not an empty segment") {
    std::string text;
    for (const char* name : {"a", "b", "c"}) text += segment(name, "");
    CHECK(contains(resolve_error_of(text, 2), "are empty for a model of 2 layers"));
}

TEST_CASE("automatic and explicit layers do not mix") {
    CHECK(contains(resolve_error_of(segment("a", "") + segment("b", "layers = [15, 30]"), 30),
                   "\"auto\" for 1 of 2 segments"));
}

TEST_CASE("a core that this process may not use is named with the ones it may") {
    CHECK(contains(resolve_error_of(segment("a", "cores = [0, 7]"), 30),
                   "cores names core 7, this process may use 0, 1"));
}

TEST_CASE("more threads than cores are refused") {
    CHECK(contains(resolve_error_of(segment("a", "cores = [1]\nthreads = 2"), 30),
                   "threads 2 is more than its 1 cores"));
}

TEST_CASE("an unknown key is refused with file, line, key, value and the known ones") {
    const std::string what = error_of(segment("a", "layer = 3"));
    CHECK(contains(what, "test.toml:4: [[stage]] \"a\": layer = 3 is not a known key"));
    CHECK(contains(what, "known: name, role, layers, cores, threads"));
    CHECK(contains(error_of("[pipe]\nname = \"x\"\n" + segment("a", "")), "pipe"));
}

TEST_CASE("a value that is not allowed is named with what is") {
    CHECK(contains(error_of("[[stage]]\nname = \"a\"\nrole = \"verifier\"\n"),
                   "role = \"verifier\" is not allowed (allowed: \"segment\", \"draft\")"));
    CHECK(contains(error_of(segment("a", "threads = 0")),
                   "threads = 0 must be a whole number from 1"));
    CHECK(contains(error_of(segment("a", "layers = [3, 3]")),
                   "layers = [ 3, 3 ] must be [first, last]"));
    CHECK(contains(error_of(segment("a", "layers = [0.5, 1.5]")), "as fractions"));
    CHECK(contains(error_of(segment("a", "cores = [1, 1]")), "names a core twice"));
    CHECK(contains(error_of(segment("a", "cores = \"all\"")), "cores = \"all\" is not allowed"));
    CHECK(contains(error_of(segment("a", "name = 3")), "test.toml:"));
}

TEST_CASE("drafts and their settings come together") {
    const std::string draft = "[[stage]]\nname = \"d\"\nrole = \"draft\"\n";
    CHECK(contains(error_of(segment("a", "") + draft), "no [draft] table"));
    CHECK(contains(error_of(segment("a", "") + "[draft]\ngamma = 4\n"),
                   "no stage with role = \"draft\""));
    CHECK(contains(error_of(segment("a", "") + draft + "[draft]\ngamma = 33\n"),
                   "[draft] gamma = 33 must be a whole number from 1 to 32"));
    CHECK(contains(error_of(segment("a", "") + draft + "[draft]\nmin_ngram = 5\nmax_ngram = 4\n"),
                   "min_ngram = 5 is greater than max_ngram 4"));
    CHECK(contains(error_of(draft + "[draft]\n"), "0 stages with role = \"segment\""));
    CHECK(contains(error_of(segment("a", "") + draft + "layers = [0, 3]\n[draft]\n"),
                   "this stage is a draft"));
}

TEST_CASE("stage names are unique") {
    CHECK(contains(error_of(segment("a", "") + segment("a", "")), "\"a\" is used twice"));
}

TEST_CASE("what is no TOML and what cannot be read is said with file and line") {
    CHECK(contains(error_of("[[stage]]\nname = \n"), "test.toml:2"));
    Result<PipelineConfig> missing = read_pipeline_config("/nonexistent/x.toml");
    REQUIRE(!missing.ok());
    CHECK(contains(missing.error().what, "/nonexistent/x.toml: cannot be opened: No such file"));
    CHECK(!read_pipeline_config(PACELINE_SOURCE_DIR).ok());
}

TEST_CASE("the built-in pipelines resolve") {
    CHECK(resolve(built_in_pipeline(std::nullopt), 30, {0, 1}).ok());
    const PipelineConfig lookup = built_in_pipeline(DraftMethod::PromptLookup);
    REQUIRE(lookup.draft.has_value());
    Result<std::vector<PlacedStage>> placed = resolve(lookup, 30, {0, 1});
    REQUIRE(placed.ok());
    CHECK(placed.value().size() == 2);
    CHECK(placed.value()[1].role == StageRole::Draft);
    CHECK(placed.value()[1].threads == 1);
}
