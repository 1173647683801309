#include "launch/plan/prediction.hpp"

#include <string>

#include <doctest/doctest.h>

#include "launch/base/shapes.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/plan/method_trial.hpp"
#include "launch/plan/plan_table.hpp"
#include "launch/simulate/cost_names.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr double kVerify = 0.010;
constexpr double kDraftPass = 0.001;

constexpr const char* kSegment = "[[stage]]\nname = \"target\"\nrole = \"segment\"\n";
constexpr const char* kDraft =
    "[[stage]]\nname = \"draft\"\nrole = \"draft\"\n"
    "[draft]\nsource = \"first-layers\"\nlayers = 1\ngamma = 4\n";

PipelineConfig config_of(const std::string& stages) {
    auto config = parse_pipeline_config("[pipeline]\nname = \"x\"\n" + stages, "x");
    REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error().what));
    return std::move(config).value();
}

struct Machine2 {
    Machine2() : file{open_shape("tiny").value()} { model.random = "tiny"; }

    [[nodiscard]] Prediction predict(const std::string& stages,
                                     double accuracy,
                                     std::vector<int> cores = {0, 1}) const {
        const std::string name = cost_name(file.path(), model.dtype, 0);
        const CostTable costs =
            CostTable::of({{.stage = "verify", .fingerprint = name, .seconds = kVerify},
                           {.stage = "exit", .fingerprint = name, .seconds = 0.0},
                           {.stage = "draft", .fingerprint = name, .seconds = kDraftPass},
                           {.stage = "hop", .fingerprint = kNoModel, .seconds = 1e-6}});
        const Result<Prediction> made = predict_method({.file = file,
                                                        .model = model,
                                                        .costs = costs,
                                                        .cores = std::move(cores),
                                                        .accuracy = {.draft = accuracy}},
                                                       {config_of(stages)});
        REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().what));
        return made.value();
    }

    ModelFile file;
    ModelOptions model;
};

}  // namespace

TEST_CASE_FIXTURE(Machine2,
                  "a draft that is right is predicted to gain, a wrong one to cost little") {
    const double plain = predict(kSegment, 0.5).tokens_per_second;
    CHECK(plain == doctest::Approx(1.0 / kVerify).epsilon(0.02));
    const std::string stages = std::string{kSegment} + kDraft + "[schedule]\ncontroller = \"on\"\n";
    CHECK(predict(stages, 0.9).tokens_per_second > 1.8 * plain);
    CHECK(predict(stages, 0.0).tokens_per_second > 0.96 * plain);
}

TEST_CASE_FIXTURE(Machine2, "what no table of costs has is not predicted, and said") {
    const std::string lookup =
        "[[stage]]\nname = \"draft\"\nrole = \"draft\"\n[draft]\nsource = \"prompt-lookup\"\n";
    CHECK(predict(kSegment + lookup, 0.5).note == "without the lookup");
    const std::string ahead = std::string{kSegment} + kDraft + "pace = \"ahead\"\n";
    CHECK(predict(ahead, 0.5).tokens_per_second > 0.0);
    const Prediction shared = predict(ahead, 0.5, {0});
    CHECK(shared.tokens_per_second == 0.0);
    CHECK(shared.note == "its processes share cores");
}

TEST_CASE_FIXTURE(Machine2, "a draft of the target's first layers counts without its adapter") {
    const Prediction adapter = predict(std::string{kSegment} +
                                           "[self_draft]\nhead = \"adapter\"\n"
                                           "[schedule]\nmode = \"at-once\"\n",
                                       0.5);
    CHECK(adapter.tokens_per_second > 0.0);
    CHECK(adapter.note == "without the adapter's time");
}

TEST_CASE_FIXTURE(Machine2, "heads that look ahead are predicted to gain what their tokens do") {
    const std::string stages =
        std::string{kSegment} + "[exit]\nahead = 3\nahead_block = \"random\"\n";
    const double plain = predict(kSegment, 0.5).tokens_per_second;
    const Prediction ahead = predict(stages, 0.5);
    CHECK(ahead.note == "its heads as accurate as an exit");
    CHECK(ahead.tokens_per_second > 1.3 * plain);
}

TEST_CASE("acceptance is known of chains that a model drafts") {
    const PipelineConfig chains = config_of(std::string{kSegment} + kDraft);
    VerdictTally tally{.drafts = 25, .accepted = 75};
    CHECK(draft_acceptance(chains, tally) == doctest::Approx(0.75));
    tally.drafts = 3;
    CHECK(draft_acceptance(chains, tally) == 0.0);
    const PipelineConfig none = config_of(kSegment);
    CHECK(draft_acceptance(none, {.drafts = 25, .accepted = 75}) == 0.0);
}

TEST_CASE("the table has the fastest first, and the refused last") {
    const std::vector<PlannedMethod> methods{
        {.name = "slow", .predicted = 100, .predicted_gain = 0.5},
        {.name = "refused", .refusal = "no heads"},
        {.name = "fast", .predicted = 300, .predicted_gain = 1.5},
        {.name = "tried", .measured = MethodRate{.gain = 1.1, .tokens_per_second = 1, .runs = 1}}};
    const std::string table =
        plan_table({.model = "m", .cores = 2}, methods, {.method = "tried", .reason = "because"});
    CHECK(table.find("tried") < table.find("fast"));
    CHECK(table.find("fast") < table.find("slow"));
    CHECK(table.find("slow") < table.find("cannot decode it here: refused: no heads"));
    CHECK(table.ends_with("--method auto takes tried: because\n"));
}
