// Placement on GPUs, with sizes that are easy to add: a layer is 10 GB, a draft 3.
#include "launch/placement/gpu_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/placement/found_machine.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr int kLayers = 8;

/// `rooms`: what stages may have on each GPU, in GB.
GpuMachine machine_of(const std::vector<int>& rooms) {
    GpuMachine machine{.source = "m.toml", .name = "test", .gpus = {}};
    for (std::size_t i = 0; i < rooms.size(); ++i) {
        const std::uint64_t room = static_cast<std::uint64_t>(rooms[i]) * kGigabyte;
        // Two GPUs are near to each eight cores.
        std::vector<int> cores;
        for (int core = 0; core < 8; ++core) cores.push_back(static_cast<int>(i) / 2 * 8 + core);
        machine.gpus.push_back({"card", room + kGpuContextBytes, cores});
    }
    return machine;
}

std::vector<MemoryNeed> sizes(const Placement& placement) {
    std::vector<MemoryNeed> needs;
    for (const PlacedStage& stage : placement.stages) {
        const auto layers = static_cast<std::uint64_t>(stage.layers.last - stage.layers.first);
        const std::uint64_t all =
            stage.role == StageRole::Segment ? layers * 10 * kGigabyte : 3 * kGigabyte;
        needs.push_back({.name = stage.name,
                         .weight_bytes = all / 2,
                         .kv_bytes = all / 4,
                         .on_gpu = stage.device.gpu.has_value(),
                         .workspace_bytes = all / 4});
    }
    return needs;
}

Result<GpuPlan> plan_of(const PipelineConfig& config,
                        const GpuMachine& machine,
                        std::vector<int> gpus = {}) {
    if (gpus.empty()) {
        gpus.resize(machine.gpus.size());
        std::iota(gpus.begin(), gpus.end(), 0);
    }
    return plan_gpus(config, {machine, std::move(gpus), machine.cores(), kLayers}, sizes);
}

/// The configuration of a method with a model for its drafts.
PipelineConfig with_draft(const char* method) {
    PipelineConfig config = method_config(method).value();
    REQUIRE(use_draft_model(config, "draft.gguf").ok());
    return config;
}

/// "early 0, final 1, draft 2": the GPU of each stage by id; - is the CPU.
std::string placement_text(const Result<GpuPlan>& plan) {
    if (!plan.ok()) return plan.error().what;
    std::string text;
    for (const PlacedStage& stage : plan.value().placement.stages) {
        text += (text.empty() ? "" : ", ") + stage.name + " ";
        text += stage.device.gpu ? std::to_string(*stage.device.gpu) : "-";
    }
    return text;
}

PipelineConfig parsed(const std::string& text) {
    return parse_pipeline_config(text, "x.toml").value();
}

}  // namespace

TEST_CASE(
    "one GPU holds all stages in one process, two part target and draft, three also segments") {
    const PipelineConfig fold = with_draft("fold");
    const Result<GpuPlan> one = plan_of(fold, machine_of({90}));
    CHECK(placement_text(one) == "early 0, final 0, draft 0");
    REQUIRE(one.value().placement.processes.size() == 1);
    CHECK(one.value().placement.processes.front().name == "gpu0");
    CHECK(placement_text(plan_of(fold, machine_of({90, 90}))) == "early 0, final 0, draft 1");
    CHECK(placement_text(plan_of(fold, machine_of({90, 90, 90}))) == "early 0, final 1, draft 2");
    CHECK(placement_text(plan_of(fold, machine_of({90, 90, 90, 90}))) ==
          "early 0, final 1, draft 2");
}

TEST_CASE(
    "draft and correct get a GPU each where there are four, and share one where there are two") {
    const PipelineConfig four = with_draft("four-stages");
    CHECK(placement_text(plan_of(four, machine_of({90, 90, 90, 90}))) ==
          "early-verify 0, final-verify 1, draft 2, correct 3");
    CHECK(placement_text(plan_of(four, machine_of({90, 90}))) ==
          "early-verify 0, final-verify 0, draft 1, correct 1");
}

TEST_CASE("a target that needs all GPUs has its drafts beside the smallest holder that has room") {
    // 50 GB of early layers, 30 of late ones: the draft goes where less is held.
    const PipelineConfig fold = with_draft("fold");
    CHECK(placement_text(plan_of(fold, machine_of({50, 50}))) == "early 0, final 1, draft 1");
    CHECK(placement_text(plan_of(fold, machine_of({60, 32}))) == "early 0, final 1, draft 0");
}

TEST_CASE("segments that do not fit whole are cut, with the exit at the end of the last part") {
    const Result<GpuPlan> plan = plan_of(with_draft("fold"), machine_of({30, 30, 30, 30}));
    REQUIRE(plan.ok());
    int next = 0;
    std::map<int, std::uint64_t> held;
    for (std::size_t i = 0; i < plan.value().needs.size(); ++i) {
        const PlacedStage& stage = plan.value().placement.stages[i];
        held[*stage.device.gpu] += gpu_bytes(plan.value().needs[i]);
        if (stage.role != StageRole::Segment) continue;
        CHECK(stage.layers.first == next);
        next = stage.layers.last;
        CHECK(stage.exit == (stage.layers.last == 5));
    }
    CHECK(next == kLayers);
    for (const auto& [gpu, bytes] : held) CHECK(bytes <= 30 * kGigabyte);
    const PipelineConfig pearl = with_draft("pearl");
    CHECK(placement_text(plan_of(pearl, machine_of({45, 45, 5}))) ==
          "target-1 0, target-2 1, draft 2");
}

TEST_CASE("a device that the file names wins, and a target on the CPU stays there") {
    PipelineConfig config = parsed(R"(
[[stage]]
name = "draft"
role = "draft"
device = "cuda:0"
[[stage]]
name = "target"
role = "segment"
[draft]
source = "model"
model = "draft.gguf"
)");
    CHECK(placement_text(plan_of(config, machine_of({90, 90}))) == "target 1, draft 0");
    CHECK(placement_text(plan_of(config, machine_of({90}))) == "target 0, draft 0");
    CHECK(placement_text(plan_of(config, machine_of({90, 90}), {1})).find("device = \"cuda:0\"") !=
          std::string::npos);
    for (StageConfig& stage : config.stages) {
        stage.device = {};
        stage.device_given = stage.role == StageRole::Segment;
    }
    CHECK(placement_text(plan_of(config, machine_of({90, 90}))) == "target -, draft 0");
}

TEST_CASE("a draft that only looks up stays on the CPU, and a shared process stays together") {
    PipelineConfig pearl = method_config("pearl").value();
    pearl.draft->use_stand_in();
    CHECK(placement_text(plan_of(pearl, machine_of({90, 90}))) == "target 0, draft -");
    const Result<GpuPlan> exits = plan_of(method_config("adadecode").value(), machine_of({90, 90}));
    REQUIRE(exits.ok());
    for (const PlacedStage& stage : exits.value().placement.stages)
        CHECK(stage.device.gpu == std::optional{0});
}

TEST_CASE("what does not fit is refused with stage, device, bytes needed and bytes there") {
    const Result<GpuPlan> target = plan_of(with_draft("pearl"), machine_of({12, 12}));
    REQUIRE(!target.ok());
    CHECK(target.error().code == Errc::OutOfMemory);
    CHECK(target.error().what.find("\"target-1\" needs 40.00 GB on cuda:0 (card), there are "
                                   "12.00 GB") != std::string::npos);
    CHECK(target.error().what.find("all stages need 83.00 GB") != std::string::npos);
    const Result<GpuPlan> draft = plan_of(with_draft("pearl"), machine_of({81, 2}));
    REQUIRE(!draft.ok());
    CHECK(draft.error().what.find("\"draft\" needs 3.00 GB on cuda:1 (card), there are 2.00 GB") !=
          std::string::npos);
}

TEST_CASE("each process has cores of its own near its GPU, unless the file names them") {
    PipelineConfig four = with_draft("four-stages");
    for (StageConfig& stage : four.stages) {
        if (stage.role == StageRole::Correct) stage.cores = {1};
    }
    const Result<GpuPlan> plan = plan_of(four, machine_of({90, 90, 90, 90}));
    REQUIRE(plan.ok());
    std::map<std::string, std::vector<int>> cores;
    for (const PlacedProcess& process : plan.value().placement.processes)
        cores[process.name] = process.cores;
    // Eight cores are near to two GPUs; one stays for the conductor.
    CHECK(cores["early-verify"] == std::vector<int>{0, 1, 2});
    CHECK(cores["final-verify"] == std::vector<int>{3, 4, 5});
    CHECK(cores["draft"] == std::vector<int>{8, 9, 10, 11});
    CHECK(cores["correct"] == std::vector<int>{1});
}

TEST_CASE("where cores are few none are named: a process without a GPU needs one too") {
    PipelineConfig pearl = method_config("pearl").value();
    pearl.draft->use_stand_in();
    GpuMachine machine = machine_of({90});
    machine.gpus.front().near_cores = {0, 1};
    const Result<GpuPlan> plan = plan_of(pearl, machine);
    REQUIRE(plan.ok());
    for (const StageConfig& stage : plan.value().config.stages) CHECK(stage.cores.empty());
    for (const PlacedProcess& process : plan.value().placement.processes)
        CHECK(process.cores.size() == 1);
}

TEST_CASE("a pipeline that may not be cut is refused for its bytes, not for the cut") {
    // Its exit must stand at the end of the first segment.
    const Result<GpuPlan> plan = plan_of(with_draft("fold-lockstep"), machine_of({30, 45, 5}));
    REQUIRE(!plan.ok());
    CHECK(plan.error().code == Errc::OutOfMemory);
    CHECK(plan.error().what.find("\"early\" needs") != std::string::npos);
}

TEST_CASE("GPUs that were found have the cores near to their place, and links by whom they reach") {
    const Machine host{
        .allowed = {0, 1, 2, 3, 4, 5}, .smt = {{0, 3}, {1, 4}, {2, 5}}, .quota = {}, .online = 6};
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("paceline-pci-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder / "0000:3b:00.0");
    std::ofstream{folder / "0000:3b:00.0" / "local_cpulist"} << "1-2,4-5\n";
    const GpuMachine machine = found_machine({.names = {"A", "B", "C"},
                                              .why_none = {},
                                              .memory = {7, 8, 9},
                                              .pci_places = {"0000:3b:00.0", "", ""},
                                              .peers = {{1, 2}, {0}, {}}},
                                             host, folder.string());
    std::filesystem::remove_all(folder);
    REQUIRE(machine.gpus.size() == 3);
    CHECK(machine.gpus[0].near_cores == std::vector<int>{1, 2});
    CHECK(machine.gpus[1].near_cores.empty());
    CHECK(machine.gpus[1].memory_bytes == 8);
    CHECK(to_text(machine.link(0, 1)) == "peer access");
    CHECK(to_text(machine.link(2, 0)) == "host");  // one way is not enough
    CHECK(to_text(machine.link(1, 2)) == "host");
}
