// Settings and costs of `paceline simulate`.
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "launch/simulate/cost_measure.hpp"
#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/settings.hpp"
#include "launch/simulate/timing.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

template <class Outcome>
std::string why(const Outcome& outcome) {
    return outcome.ok() ? "" : outcome.error().what;
}

constexpr const char* kTwo = R"([pipeline]
name = "two"
[[stage]]
name = "front"
role = "segment"
[[stage]]
name = "back"
role = "segment"
[[stage]]
name = "candidate"
role = "draft"
[draft]
gamma = 4  # as it was
)";

CostRecord record(const char* stage,
                  const char* model,
                  std::uint32_t layers,
                  std::uint32_t rows,
                  double seconds) {
    return {
        .stage = stage, .fingerprint = model, .layers = layers, .rows = rows, .seconds = seconds};
}

/// A whole target of 4 layers takes 10 ms, its head 2 ms; short heads 0.5 ms; a hop 0.1 ms.
CostTable measured() {
    return CostTable::of(
        {record("layers", "big:auto", 4, 1, 0.010), record("layers", "big:auto", 4, 8, 0.020),
         record("head", "big:auto", 0, 1, 0.002), record("head", "big:auto:100", 0, 1, 0.0005),
         record("hop", "-", 0, 1, 0.0001)});
}

std::vector<StageCosts> stages() {
    return {{.process = StageId{1},
             .actors = {StageId{1}},
             .name = "target",
             .target = {"big:auto", "big:auto"}},
            {.process = StageId{2},
             .actors = {StageId{2}, StageId{3}},
             .name = "draft",
             .draft = {"big:auto", "big:auto:100"}}};
}

double seconds(SimTime time) {
    return static_cast<double>(time.count()) / 1e9;
}

}  // namespace

TEST_CASE("a key is replaced where it stands, added to its table, or added with its table") {
    CHECK(with_key("[draft]\ngamma = 4\n", "draft", "gamma", "9") == "[draft]\ngamma = 9\n");
    CHECK(with_key("[draft]\nwidth = 2\n", "draft", "gamma", "9") ==
          "[draft]\ngamma = 9\nwidth = 2\n");
    CHECK(with_key("a = 1\n", "exit", "head", "random") == "a = 1\n\n[exit]\nhead = \"random\"\n");
    // The same key of another table stays.
    CHECK(with_key("[exit]\ntop = 1\n[draft]\ntop = 2\n", "draft", "top", "7") ==
          "[exit]\ntop = 1\n[draft]\ntop = 7\n");
    CHECK(with_key("[supervision]\n", "supervision", "backoff_ms", "[1, 3]") ==
          "[supervision]\nbackoff_ms = [1, 3]\n");
    CHECK(with_key("[draft]\n", "draft", "adaptive", "true") == "[draft]\nadaptive = true\n");
}

TEST_CASE("settings reach the configuration, and wrong ones are refused by name") {
    const StageTimingOptions timing;
    const auto variant = apply_settings(
        {kTwo, "two.toml"}, {{"draft.gamma", "7"}, {"exit-layer", "3"}, {"draft-cost", "0.25"}},
        timing, 10);
    INFO(why(variant));
    REQUIRE(variant.ok());
    CHECK(variant.value().config.draft->growth.gamma == 7);
    CHECK(variant.value().timing.draft_cost == 0.25);
    CHECK(std::get<LayerRange>(variant.value().config.stages[0].layers) == LayerRange{0, 3});
    CHECK(std::get<LayerRange>(variant.value().config.stages[1].layers) == LayerRange{3, 10});
    const std::vector<Setting> wrong{
        {"exit-layer", "10"}, {"exit-layer", "0"},  {"draft-cost", "-1"}, {"draft-cost", "fast"},
        {"gamma", "3"},       {"draft.gamma", "0"}, {"draft.gama", "3"}};
    for (const Setting& setting : wrong) {
        CAPTURE(setting.key);
        const auto refused = apply_settings({kTwo, "two.toml"}, {setting}, timing, 10);
        REQUIRE_FALSE(refused.ok());
        const std::string key = setting.key.substr(setting.key.find('.') + 1);
        CHECK(refused.error().what.find(key) != std::string::npos);
    }
}

TEST_CASE("a setting replaces that of a method which the configuration extends") {
    const ConfigSource source{"extends = \"fold\"\n[draft]\nwidth = 2\n", "mine.toml"};
    const auto variant =
        apply_settings(source, {{"draft.gamma", "7"}, {"exit.top", "3"}}, StageTimingOptions{}, 10);
    INFO(why(variant));
    REQUIRE(variant.ok());
    const PipelineConfig& config = variant.value().config;
    CHECK(config.draft->growth.gamma == 7);
    CHECK(config.draft->growth.width == 2);
    CHECK(config.exit->options.top == 3);
    CHECK(config.file == "mine.toml");
}

TEST_CASE("sweeps are all combinations, and lists in brackets stay whole") {
    const auto one = parse_sweep("draft.gamma=2, 4,8");
    REQUIRE(one.ok());
    REQUIRE(one.value().size() == 3);
    CHECK(one.value()[1].value == "4");
    const auto lists = parse_sweep("supervision.backoff_ms=[1,3],[2,4]");
    REQUIRE(lists.ok());
    REQUIRE(lists.value().size() == 2);
    CHECK(lists.value()[1].value == "[2,4]");
    const auto all = combinations({one.value(), lists.value()});
    REQUIRE(all.size() == 6);
    CHECK(all[3][0].value == "4");
    CHECK(all[3][1].value == "[2,4]");
    CHECK(combinations({}).size() == 1);
    for (const char* bad : {"gamma", "=3", "gamma=", "gamma=1,,2"})
        CHECK_FALSE(parse_sweep(bad).ok());
}

TEST_CASE("what is measured is read back as it was written") {
    std::mt19937 random{5};
    std::vector<CostRecord> records;
    for (int i = 0; i < 50; ++i) {
        records.push_back({.stage = i % 2 == 0 ? "layers" : "head",
                           .fingerprint = cost_name("/some/where/big model#1.gguf", "q4", i % 3),
                           .layers = static_cast<std::uint32_t>(random() % 40),
                           .rows = 1 + static_cast<std::uint32_t>(random() % 64),
                           .context = static_cast<std::uint32_t>(random() % 2000),
                           .threads = static_cast<std::uint32_t>(random() % 4),
                           .neighbours = static_cast<std::uint32_t>(random() % 2),
                           .seconds = static_cast<double>(random() % 1'000'000) * 1e-9});
    }
    const auto table = CostTable::parse(cost_table_text(records, {"a remark"}), "costs.tsv");
    INFO(why(table));
    REQUIRE(table.ok());
    REQUIRE(table.value().records().size() == records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
        const CostRecord& read = table.value().records()[i];
        CHECK(read.stage == records[i].stage);
        CHECK(read.fingerprint == records[i].fingerprint);
        CHECK(read.layers == records[i].layers);
        CHECK(read.rows == records[i].rows);
        CHECK(read.context == records[i].context);
        CHECK(read.threads == records[i].threads);
        CHECK(read.neighbours == records[i].neighbours);
        CHECK(read.seconds == doctest::Approx(records[i].seconds));
    }
    CHECK(cost_name("a/b.gguf", "auto", 0) == "b:auto");
    CHECK(cost_name("a/b.gguf", "auto", 512) == "b:auto:512");
}

TEST_CASE("depths to measure are ascending, each once, and within the model") {
    for (const int layers : {1, 2, 3, 8, 30, 32}) {
        const std::vector<int> depths = depths_of({}, layers);
        CHECK(depths.back() == layers);
        CHECK(depths.front() == 1);
        for (std::size_t i = 1; i < depths.size(); ++i) CHECK(depths[i - 1] < depths[i]);
    }
    CostPlan plan;
    plan.depths = {7, 3, 7};
    CHECK(depths_of(plan, 30) == std::vector<int>{3, 7});
}

TEST_CASE("jobs of target and draft cost what the table says of their layers and heads") {
    const std::vector<EdgeSpec> edges{{.from = StageId{3}, .to = StageId{1}}};
    StageTimingOptions options;
    options.target_layers = 4;
    SimRandom random{1};
    const JobLabel half{.name = "verify", .rows = 1, .layers = 2, .heads = 1};
    const JobLabel draft{.name = "draft", .rows = 1, .layers = 1, .heads = 1};
    const JobLabel wide{.name = "draft", .rows = 8, .layers = 1, .heads = 1};
    {
        auto timing = StageTiming::make(measured(), "costs.tsv", stages(), edges, options);
        REQUIRE(timing.ok());
        CHECK(seconds(timing.value()->job(StageId{1}, half, random)) == doctest::Approx(0.007));
        CHECK(seconds(timing.value()->job(StageId{2}, draft, random)) == doctest::Approx(0.003));
        // An exit's job is its heads: no layers.
        const JobLabel exit{.name = "exit", .rows = 1, .heads = 1};
        CHECK(seconds(timing.value()->job(StageId{1}, exit, random)) == doctest::Approx(0.002));
        // An actor that is hosted by another's process has that process's hops.
        CHECK(seconds(timing.value()->hop(edges[0], 1, random)) == doctest::Approx(0.0001));
        CHECK_FALSE(timing.value()->error().has_value());
    }
    // A pass of the draft takes a quarter of the target's 12 ms; eight rows in proportion.
    options.draft_cost = 0.25;
    options.hop_seconds = 0.0;
    auto timing = StageTiming::make(measured(), "costs.tsv", stages(), edges, options);
    REQUIRE(timing.ok());
    CHECK(seconds(timing.value()->job(StageId{2}, draft, random)) == doctest::Approx(0.003));
    CHECK(seconds(timing.value()->job(StageId{2}, wide, random)) == doctest::Approx(0.0055));
    CHECK(seconds(timing.value()->hop(edges[0], 1, random)) == doctest::Approx(0.0));
}

TEST_CASE("costs that are missing are named before anything runs") {
    auto other = stages();
    other[1].draft = {"big:auto", "big:auto:999"};
    const auto no_head = StageTiming::make(measured(), "costs.tsv", other, {}, {});
    REQUIRE_FALSE(no_head.ok());
    CHECK(no_head.error().what.find("'head' of model 'big:auto:999'") != std::string::npos);
    other[1].draft = {"tiny:auto", "tiny:auto"};
    const auto no_model = StageTiming::make(measured(), "costs.tsv", other, {}, {});
    REQUIRE_FALSE(no_model.ok());
    CHECK(no_model.error().what.find("costs.tsv") != std::string::npos);
    CHECK(no_model.error().what.find("tiny:auto") != std::string::npos);
    // A table written by hand names stages as the jobs are called.
    const CostTable by_hand = CostTable::of(
        {record("verify", "big:auto", 4, 1, 0.01), record("draft", "big:auto", 0, 1, 0.001)});
    CHECK(StageTiming::make(by_hand, "costs.tsv", stages(), {}, {}).ok());
}
