// Which cores processes get that name none, and who may spin on them.
#include "launch/placement/core_shares.hpp"

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/session/pipeline_start.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

using Cores = std::vector<int>;

/// The processes of a pipeline by name, each with its cores.
std::vector<std::pair<std::string, Cores>> cores_of(const PipelineConfig& config,
                                                    const Cores& usable) {
    const Result<Placement> placed = place(config, 30, usable);
    REQUIRE(placed);
    std::vector<std::pair<std::string, Cores>> cores;
    for (const PlacedProcess& process : placed.value().processes)
        cores.emplace_back(process.name, process.cores);
    return cores;
}

PipelineConfig with_model_draft(const char* method) {
    PipelineConfig config = method_config(method).value();
    config.draft->model = DraftModelKind::FirstLayers;
    return config;
}

}  // namespace

TEST_CASE("groups get cores of their own, drafts one, the first target what is left over") {
    const std::vector<CoreDemand> demands{
        {.group = 0}, {.group = 1}, {.group = 2, .modest = true}, {}};
    const auto five = share_cores(demands, {0, 1, 2, 3, 4});
    CHECK(five == std::vector<Cores>{{0, 1}, {2, 3}, {4}, {0, 1, 2, 3, 4}});
    const auto six = share_cores(demands, {0, 1, 2, 3, 4, 5});
    CHECK(six[0].size() == 3);
    CHECK(six[1].size() == 2);
    // Too few to be apart: all share all.
    CHECK(share_cores(demands, {0, 1}) == std::vector<Cores>(4, Cores{0, 1}));
}

TEST_CASE("named cores stay, others keep off them, and named threads get a core each") {
    const std::vector<CoreDemand> named{
        {.group = 0, .named = {1, 2}}, {.group = 1, .modest = true, .threads = 2}, {}};
    CHECK(share_cores(named, {0, 1, 2, 3, 4}) == std::vector<Cores>{{1, 2}, {0, 3}, {4}});
    CHECK(share_cores(named, {1, 2, 3})[1] == Cores{1, 2, 3});  // not two left: shares
    // Who takes turns with the one that named some may use them as well.
    const std::vector<CoreDemand> turns{{.group = 0, .named = {1}}, {.group = 0}};
    CHECK(share_cores(turns, {0, 1}) == std::vector<Cores>{{1}, {0, 1}});
}

TEST_CASE("segments that take turns share all cores, those with batches in flight are apart") {
    CHECK(cores_of(method_config("autoregressive-segments").value(), {0, 1}) ==
          std::vector<std::pair<std::string, Cores>>{{"segment-1", {0, 1}}, {"segment-2", {0, 1}}});
    CHECK(cores_of(method_config("adadecode-parallel").value(), {0, 1, 2, 3}) ==
          std::vector<std::pair<std::string, Cores>>{{"segment-1", {0, 1}}, {"segment-2", {2, 3}}});
}

TEST_CASE("a draft model that runs ahead gets a core, one that takes turns shares them all") {
    CHECK(cores_of(with_model_draft("pearl"), {0, 1}) ==
          std::vector<std::pair<std::string, Cores>>{{"target", {0}}, {"draft", {1}}});
    CHECK(cores_of(with_model_draft("fold"), {0, 1, 2}) ==
          std::vector<std::pair<std::string, Cores>>{
              {"early", {0, 1}}, {"final", {0, 1}}, {"draft", {2}}});
    CHECK(cores_of(with_model_draft("speculative"), {0, 1}) ==
          std::vector<std::pair<std::string, Cores>>{{"target", {0, 1}}, {"draft", {0, 1}}});
    // Lookups need no core of their own.
    PipelineConfig lookups = method_config("pearl").value();
    lookups.draft->use_stand_in();
    CHECK(cores_of(lookups, {0, 1})[0].second == Cores{0, 1});
}

TEST_CASE("one core feeds a GPU, a draft on the CPU beside it gets the others") {
    PipelineConfig config = with_model_draft("pearl");
    for (StageConfig& stage : config.stages) {
        if (stage.role == StageRole::Segment) stage.device = Device{0};
    }
    const Result<Placement> placed = place(config, 30, {0, 1, 2, 3});
    REQUIRE(placed);
    REQUIRE(placed.value().processes.size() == 2);
    CHECK(placed.value().processes[0].cores == Cores{0});
    CHECK(placed.value().processes[0].threads == 1);
    CHECK(placed.value().processes[1].cores == Cores{1, 2, 3});
    CHECK(placed.value().processes[1].threads == 3);
}

TEST_CASE("a pipeline that is told to take one thread gets one core in all") {
    const Result<ModelFile> file = ModelFile::open(testing::fixtures() + "/models/tiny-chat.gguf");
    REQUIRE(file.ok());
    ModelOptions options;
    options.threads = 1;
    const PipelineConfig config = method_config("adadecode-parallel").value();
    const Result<PipelinePlan> plan = plan_pipeline(file.value(), options, {config}, {});
    if (!plan) FAIL(plan.error().what);
    const std::vector<PlacedProcess>& processes = plan.value().placement.processes;
    REQUIRE(processes.size() == 2);
    CHECK(processes[0].cores.size() == 1);
    CHECK(processes[0].cores == processes[1].cores);
    CHECK(!processes[0].may_spin);
}

TEST_CASE("threads of a stage know whether its cores are its own") {
    const auto usable_of = [](const PipelineConfig& config, std::size_t process) {
        const Placement placed = place(config, 30, {0, 1}).value();
        return assignment_of(placed.processes[process], placed, config, {.usable_cores = 2})
            .usable_cores;
    };
    CHECK(usable_of(with_model_draft("pearl"), 0) == 2);
    CHECK(usable_of(with_model_draft("pearl"), 1) == 2);
    CHECK(usable_of(with_model_draft("speculative"), 0) == 0);
    CHECK(usable_of(method_config("autoregressive-segments").value(), 1) == 0);
    CHECK(usable_of(method_config("autoregressive").value(), 0) == 2);
    CHECK(usable_of(method_config("adadecode").value(), 0) == 0);  // four models in one process
}
