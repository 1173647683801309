// Pipelines on simulated devices: the text is plain decoding's, the time is what the costs say.
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "launch/session/answer_compare.hpp"
#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/world.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

template <class Outcome>
std::string why(const Outcome& outcome) {
    return outcome.ok() ? "" : outcome.error().what;
}

const std::string kModel = testing::fixtures() + "/models/tiny-chat.gguf";

constexpr const char* kSegment = "[[stage]]\nname = \"target\"\nrole = \"segment\"\n";
constexpr const char* kTwo =
    "[[stage]]\nname = \"front\"\nrole = \"segment\"\n"
    "[[stage]]\nname = \"back\"\nrole = \"segment\"\n";
constexpr const char* kFold =
    "[[stage]]\nname = \"front\"\nrole = \"early-verify\"\n"
    "[[stage]]\nname = \"back\"\nrole = \"final-verify\"\n";
constexpr const char* kDraft = "[[stage]]\nname = \"candidate\"\nrole = \"draft\"\n";

struct Shape {
    const char* name;
    std::string stages;
};

std::vector<Shape> shapes() {
    const std::string lookup = std::string{kDraft} + "[draft]\nsource = \"prompt-lookup\"\n";
    const std::string first =
        std::string{kDraft} + "[draft]\nsource = \"first-layers\"\nlayers = 1\ngamma = 4\n";
    return {
        {"one", kSegment},
        {"two", kTwo},
        {"lookup", kSegment + lookup},
        {"sequential", kSegment + first},
        {"as configured", kSegment + first + "[schedule]\ncontroller = \"off\"\n"},
        {"pearl", kTwo + first + "pace = \"ahead\"\n"},
        {"fold", kFold + first +
                     "pace = \"ahead\"\nwidth = 4\nexit_alternatives = 2\n"
                     "[exit]\ntop = 2\n[schedule]\nshape = \"tree\"\n"},
    };
}

/// Costs between half of and three times as much as a device of the test takes.
CostTable random_costs(std::uint32_t seed) {
    std::mt19937 random{seed};
    const std::string model = cost_name(kModel, "auto", 0);
    std::vector<CostRecord> records;
    const auto add = [&](const char* stage, const std::string& of, std::uint32_t rows,
                         double seconds) {
        const double factor = 0.5 + 2.5 * static_cast<double>(random() % 1000) / 1000.0;
        records.push_back(
            {.stage = stage, .fingerprint = of, .rows = rows, .seconds = seconds * factor});
    };
    for (const std::uint32_t rows : {1U, 8U, 64U}) {
        add("layers", model, rows, 0.010);
        add("head", model, rows, 0.002);
        add("hop", kNoModel, rows, 0.0003);
    }
    return CostTable::of(records);
}

struct Fixture {
    Fixture() : file{ModelFile::open(kModel).value()} {
        model.model = kModel;
        task.request.max_tokens = 24;
        std::mt19937 random{4};
        for (const std::size_t length : {1U, 9U, 70U}) {
            std::vector<TokenId> prompt(length);
            // Few different tokens, so that there is something to look up.
            for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 9);
            task.prompts.push_back(std::move(prompt));
        }
    }

    [[nodiscard]] Result<SimulatedRun> run(const Shape& shape, const CostTable& costs) const {
        const Result<PipelineConfig> config = parse_pipeline_config(
            std::string{"[pipeline]\nname = \""} + shape.name + "\"\n" + shape.stages, shape.name);
        INFO(why(config));
        REQUIRE(config.ok());
        return simulate(file, model, {config.value()}, costs, "costs.tsv", {}, task);
    }
    [[nodiscard]] std::vector<Answer> plain() const {
        return decode_plainly(file, model, {}, task.prompts, task.request).value();
    }

    ModelFile file;
    ModelOptions model;
    SimulateTask task;
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "whatever the pipeline and its costs, the text is plain decoding's") {
    for (const float temperature : {0.0F, 0.8F}) {
        task.request.sampling.temperature = temperature;
        task.request.sampling.seed = 17;
        const std::vector<Answer> expected = plain();
        for (const Shape& shape : shapes()) {
            for (const std::uint32_t seed : {1U, 2U}) {
                CAPTURE(shape.name);
                CAPTURE(seed);
                CAPTURE(temperature);
                task.at_once = static_cast<int>(seed);
                const Result<SimulatedRun> run = Fixture::run(shape, random_costs(seed));
                INFO(why(run));
                REQUIRE(run.ok());
                REQUIRE(run.value().answers.size() == expected.size());
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    const auto& ids = run.value().answers[i].ids;
                    CHECK_MESSAGE(ids == expected[i].ids, difference_text(ids, expected[i].ids));
                }
                CHECK(run.value().stats.rate > 0);
            }
        }
    }
}

TEST_CASE_FIXTURE(Fixture,
                  "one device without a draft is as fast as its layers, head and hop say") {
    const std::string name = cost_name(kModel, "auto", 0);
    const CostTable costs =
        CostTable::of({{.stage = "layers", .fingerprint = name, .seconds = 0.008},
                       {.stage = "head", .fingerprint = name, .seconds = 0.002}});
    const Result<SimulatedRun> made = run({"one", kSegment}, costs);
    INFO(why(made));
    REQUIRE(made.ok());
    CHECK(made.value().stats.rate == doctest::Approx(100.0).epsilon(0.02));
    CHECK(made.value().overlap.both == 0.0);
    // The same run has the same time line.
    const Result<SimulatedRun> again = run({"one", kSegment}, costs);
    REQUIRE(again.ok());
    CHECK(again.value().stats.seconds == made.value().stats.seconds);
}

TEST_CASE_FIXTURE(Fixture, "costs that are not in the table are an error that names them") {
    const CostTable costs =
        CostTable::of({{.stage = "layers", .fingerprint = "another:auto", .seconds = 0.008}});
    const Result<SimulatedRun> made = run({"one", kSegment}, costs);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().what.find("tiny-chat:auto") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a shared device of no process, or of a process twice, is refused") {
    const Shape two{"two", kTwo};
    task.shared_devices = {{"front", "middle"}};
    CHECK(why(Fixture::run(two, random_costs(1))).find("no process 'middle', but front, back") !=
          std::string::npos);
    task.shared_devices = {{"front", "back"}, {"back"}};
    CHECK(why(Fixture::run(two, random_costs(1))).find("'back' is on front,back already") !=
          std::string::npos);
}
