// Stages on several GPUs: in a configuration, and in a plan with sizes that are easy to add: a
// layer is 10 GB, a draft 3.
#include "launch/placement/gpu_groups.hpp"

#include <numeric>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/load/gpu_check.hpp"
#include "launch/placement/gpu_plan.hpp"
#include "launch/placement/gpu_table.hpp"
#include "launch/placement/kv_room.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr int kLayers = 8;

/// GPUs of `rooms` GB that all reach each other.
GpuMachine machine_of(const std::vector<int>& rooms) {
    GpuMachine machine{.source = "m.toml", .name = "test", .gpus = {}};
    for (std::size_t i = 0; i < rooms.size(); ++i) {
        const std::uint64_t room = static_cast<std::uint64_t>(rooms[i]) * kGigabyte;
        machine.gpus.push_back({"card", room + kGpuContextBytes, {0, 1, 2, 3}});
        for (std::size_t j = 0; j < i; ++j)
            machine.links[{static_cast<int>(j), static_cast<int>(i)}] = {LinkKind::Nvlink, 300};
    }
    return machine;
}

/// GPUs have even shares; the first one 1 GB more.
std::vector<MemoryNeed> sizes(const Placement& placement) {
    std::vector<MemoryNeed> needs;
    for (const PlacedStage& stage : placement.stages) {
        const auto layers = static_cast<std::uint64_t>(stage.layers.last - stage.layers.first);
        const std::size_t gpus = stage.device.gpus().size();
        MemoryNeed need{.name = stage.name, .on_gpu = gpus > 0};
        need.weight_bytes = (stage.role == StageRole::Segment ? 10 * layers : 3) * kGigabyte;
        if (gpus > 1) {
            need.gpus.assign(gpus, {need.weight_bytes / gpus, 0, 0});
            need.gpus.front().workspace_bytes = need.workspace_bytes = kGigabyte;
        }
        needs.push_back(std::move(need));
    }
    return needs;
}

Result<GpuPlan> plan_of(const PipelineConfig& config, const GpuMachine& machine, int kv_heads = 8) {
    std::vector<int> gpus(machine.gpus.size());
    std::iota(gpus.begin(), gpus.end(), 0);
    return plan_gpus(config, {machine, std::move(gpus), {0, 1, 2, 3}, kLayers, kv_heads}, sizes);
}

std::string placement_text(const Result<GpuPlan>& plan) {
    if (!plan.ok()) return plan.error().what;
    std::string text;
    for (const PlacedStage& stage : plan.value().placement.stages)
        text += (text.empty() ? "" : "; ") + stage.name + " " + to_text(stage.device);
    return text;
}

/// A target and a draft with a model.
PipelineConfig with_target(const std::string& line) {
    return parse_pipeline_config("[[stage]]\nname = \"target\"\nrole = \"segment\"\n" + line +
                                     "\n[[stage]]\nname = \"draft\"\nrole = \"draft\"\n"
                                     "[draft]\nsource = \"model\"\nmodel = \"draft.gguf\"\n",
                                 "x.toml")
        .value();
}

/// One segment, with `line`.
std::string segment(const std::string& name, const std::string& line) {
    return "[[stage]]\nname = \"" + name + "\"\nrole = \"segment\"\n" + line + "\n";
}

std::string error_of(const std::string& text) {
    const Result<PipelineConfig> config = parse_pipeline_config(text, "x.toml");
    return config.ok() ? std::string{} : config.error().what;
}

bool contains(const std::string& text, const std::string& part) {
    const bool found = text.find(part) != std::string::npos;
    CHECK_MESSAGE(found, text);
    return found;
}

}  // namespace

TEST_CASE("GPUs of a group are of one kind, the emptiest ones that reach each other first") {
    GpuMachine machine = machine_of({90, 90, 90, 90});
    const std::vector<int> all{0, 1, 2, 3};
    CHECK(choose_group(machine, all, 2, {}) == std::vector<int>{0, 1});
    CHECK(choose_group(machine, all, 2, {{0, 5}, {2, 1}}) == std::vector<int>{1, 3});
    CHECK(choose_group(machine, {3, 1}, 2, {}) == std::vector<int>{3, 1});
    CHECK(choose_group(machine, all, 5, {}).empty());
    CHECK(largest_group(machine, all) == 4);
    machine.links[{0, 1}].kind = LinkKind::Host;
    machine.gpus[3].name = "other";
    CHECK(choose_group(machine, all, 2, {}) == std::vector<int>{0, 2});
    CHECK(choose_group(machine, all, 3, {}) == std::vector<int>{0, 1, 2});
    CHECK(choose_group(machine, all, 4, {}).empty());
    CHECK(largest_group(machine, all) == 3);
    CHECK(contains(group_problem(machine, {0, 3}).value(), "are of one kind"));
    CHECK(!group_problem(machine, {0, 1}).has_value());
    CHECK(!group_problem(machine, {0, 2}).has_value());
    CHECK(goes_through_host(machine, {0, 1, 2}));
    CHECK_FALSE(goes_through_host(machine, {0, 2}));
    CHECK_FALSE(goes_through_host(machine, {0}));
}

TEST_CASE("GPUs of two machines are no group") {
    GpuMachine machine = machine_of({90, 90, 90, 90});
    machine.nodes = {"a", "b"};
    machine.gpus[2].node = machine.gpus[3].node = 1;
    CHECK(choose_group(machine, {1, 2, 3}, 2, {}) == std::vector<int>{2, 3});
    CHECK(largest_group(machine, {0, 1, 2, 3}) == 2);
    CHECK(contains(group_problem(machine, {1, 2}).value(), "are on two machines"));
}

TEST_CASE("a group is found though each of its GPUs has an emptier neighbour outside of it") {
    GpuMachine machine = machine_of({90, 90, 90, 90, 90, 90});
    // 3, 4 and 5 reach each other; 0, 1 and 2 reach one of them each.
    for (auto& [ends, link] : machine.links) {
        if (ends.first < 3 && ends.second != ends.first + 3) link.kind = LinkKind::Host;
    }
    CHECK(choose_group(machine, {0, 1, 2, 3, 4, 5}, 3, {{3, 1}, {4, 1}, {5, 1}}) ==
          std::vector<int>{3, 4, 5});
    CHECK(largest_group(machine, {0, 1, 2, 3, 4, 5}) == 6);  // through the host
}

TEST_CASE("a stage with tensor = N gets so many GPUs, its draft the emptiest one that is left") {
    const PipelineConfig two = with_target("tensor = 2");
    CHECK(placement_text(plan_of(two, machine_of({50, 50, 50}))) ==
          "target cuda:0,cuda:1; draft cuda:2");
    const Result<GpuPlan> beside = plan_of(two, machine_of({50, 50}));
    // The first GPU has 41 GB, the second 40.
    CHECK(placement_text(beside) == "target cuda:0,cuda:1; draft cuda:1");
    REQUIRE(beside.value().placement.processes.size() == 1);
    CHECK(beside.value().placement.processes.front().name == "gpu0");
}

TEST_CASE("a group that is too small for its stage is cut into two of as many GPUs") {
    const Result<GpuPlan> plan = plan_of(with_target("tensor = 2"), machine_of({25, 25, 25, 25}));
    CHECK(placement_text(plan) == "target-1 cuda:0,cuda:1; target-2 cuda:2,cuda:3; draft cuda:1");
    REQUIRE(plan.ok());
    CHECK(plan.value().placement.processes.size() == 2);
}

TEST_CASE("stages that groups join share a process, whichever of them meet") {
    PipelineConfig config = with_target("device = [\"cuda:0\", \"cuda:2\"]");
    config.stages[1].device = Device{2};
    config.stages[1].device_given = true;
    const Result<GpuPlan> plan = plan_of(config, machine_of({50, 50, 50}));
    CHECK(placement_text(plan) == "target cuda:0,cuda:2; draft cuda:2");
    REQUIRE(plan.ok());
    CHECK(plan.value().placement.processes.size() == 1);
}

TEST_CASE("what cannot be a group is refused with stage, key and value, and what would be one") {
    GpuMachine machine = machine_of({50, 50});
    CHECK(contains(placement_text(plan_of(with_target("tensor = 3"), machine)),
                   "[[stage]] \"target\": tensor = 3: of the GPUs of m.toml that may be used at "
                   "most 2 are of one kind and of one machine: tensor = 2 is possible"));
    machine.gpus[1].name = "other";
    CHECK(
        contains(placement_text(plan_of(with_target("device = [\"cuda:0\", \"cuda:1\"]"), machine)),
                 "[[stage]] \"target\": device = \"cuda:0,cuda:1\": "));
    CHECK(
        contains(placement_text(plan_of(with_target("device = [\"cuda:0\", \"cuda:7\"]"), machine)),
                 "device = \"cuda:0,cuda:7\" is not all of the GPUs of m.toml"));
}

TEST_CASE("a part that does not fit its GPU is refused, with the group that would fit") {
    const Result<GpuPlan> two = plan_of(with_target("tensor = 2"), machine_of({24, 24, 24, 5}));
    REQUIRE(!two.ok());
    CHECK(two.error().code == Errc::OutOfMemory);
    CHECK(contains(two.error().what,
                   "[[stage]] \"target-2\" (tensor = 2) needs 10.00 GB on cuda:3 "
                   "(card), there are 5.00 GB"));
    CHECK(contains(plan_of(with_target("device = [\"cuda:0\", \"cuda:1\"]"), machine_of({50, 39}))
                       .error()
                       .what,
                   "\"target\" (device = \"cuda:0,cuda:1\") needs 40.00 GB on cuda:1"));
    // A layer of 10 GB fits no GPU of 9, but two of them.
    const Result<GpuPlan> one = plan_of(with_target(""), machine_of(std::vector<int>(16, 9)));
    REQUIRE(!one.ok());
    CHECK(contains(one.error().what, "; with tensor = 2 in the target's stages it fits"));
    CHECK(plan_of(with_target(""), machine_of(std::vector<int>(16, 9)), 1)
              .error()
              .what.find("tensor") == std::string::npos);
}

TEST_CASE("the table has a line for each GPU of a group, and the room of the caches is by GPU") {
    const GpuMachine machine = machine_of({50, 60});
    const GpuRequest request{machine, {0, 1}, {0, 1, 2, 3}, kLayers, 8};
    const GpuPlan plan = plan_gpus(with_target("tensor = 2"), request, sizes).value();
    const std::string table = gpu_table(plan, request, "");
    CHECK(contains(table, "cuda:0  card  0..7    40000.0"));
    CHECK(contains(table, "cuda:1  card          40000.0"));
    const std::vector<SharedMemory> memories =
        memories_of(plan.placement, plan.needs, std::nullopt, machine);
    REQUIRE(memories.size() == 2);
    CHECK(memories[0].needed == 41 * kGigabyte);
    CHECK(memories[1].needed == 43 * kGigabyte);  // with the draft
}

TEST_CASE("a stage on a list of GPUs has all of them, and refuses lists that are none") {
    const auto stage = [](const std::string& list) { return segment("a", "device = " + list); };
    const std::string pair = stage("[\"cuda:1\", \"cuda:0\"]");
    const PipelineConfig group = parse_pipeline_config(pair, "x.toml").value();
    CHECK(group.stages.front().device.gpus() == std::vector<int>{1, 0});
    CHECK(to_text(target_device(group)) == "cuda:1,cuda:0");
    CHECK(contains(error_of(stage("[\"cuda:0\", \"cpu\"]")), "has \"cpu\" in a list"));
    CHECK(contains(error_of(stage("[\"cuda:1\", \"cuda:1\"]")), "names cuda:1 twice"));
    CHECK(contains(error_of(stage("[]")), "must be \"cpu\" or \"cuda:N\""));
    CHECK(contains(error_of(stage("\"cuda:0,cuda:1\"")), "or a list of GPUs such as"));
    std::string nine = "\"cuda:0\"";
    for (int gpu = 1; gpu < 9; ++gpu) nine += ", \"cuda:" + std::to_string(gpu) + "\"";
    CHECK(contains(error_of(stage("[" + nine + "]")), "names 9 GPUs, at most 8"));
    CHECK(contains(error_of(pair + "\n" + segment("b", "device = \"cuda:1\"")),
                   "\"b\": device = \"cuda:1\" is that of \"a\" too"));
    const auto with = [&](std::vector<std::string> names) {
        return check_gpus(group, {.names = std::move(names), .why_none = {}});
    };
    CHECK(contains(with({"one kind", "another"}).error().what, "GPUs that share a stage are"));
    CHECK(contains(with({"one kind"}).error().what, "does not exist"));
    CHECK(with({"one kind", "one kind"}).ok());
}

TEST_CASE("tensor says how many GPUs a plan gives to a stage; without a plan it is refused") {
    const PipelineConfig config =
        parse_pipeline_config(segment("a", "tensor = 4"), "x.toml").value();
    CHECK(config.stages.front().tensor == 4);
    CHECK(contains(check_gpus(config, {.names = {"card", "card"}, .why_none = {}}).error().what,
                   "\"a\": tensor = 4: no plan has chosen the GPUs"));
    CHECK(contains(error_of(segment("a", "tensor = 9")), "tensor = 9"));
    CHECK(contains(error_of(segment("a", "tensor = 2\ndevice = \"cuda:0\"")),
                   "tensor = 2 is for a plan that chooses the GPUs"));
}

TEST_CASE("--device with several GPUs puts segments on all of them and drafts on the first one") {
    PipelineConfig config = method_config("four-stages").value();
    REQUIRE(use_draft_model(config, "draft.gguf").ok());
    REQUIRE(use_device(config, parse_device("cuda:1,cuda:0").value()).ok());
    for (const StageConfig& stage : config.stages) {
        CAPTURE(stage.name);
        CHECK(to_text(stage.device) == (is_segment(stage) ? "cuda:1,cuda:0" : "cuda:1"));
        CHECK(stage.process == "gpu");
    }
}
