// How tensors of each edge travel: the choice, its reason, and what is refused.
#include "launch/placement/edge_transports.hpp"

#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/stage_assignment.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

const GpuLinks kAll{.local = true, .exported = true, .nccl = true};
const GpuLinks kNone{
    .why_no_local = "no local", .why_no_exported = "no VMM", .why_no_nccl = "no libnccl.so.2"};

/// Where a stage is: its GPU, or the CPU; its process, or one of its own.
struct Place {
    std::optional<int> gpu;
    const char* process = "";
};
constexpr Place kCpu{std::nullopt};
constexpr Place kGpu0{0};
constexpr Place kGpu1{1};
constexpr Place kGpu0Shared{0, "p"};
constexpr Place kGpu1Shared{1, "p"};

/// Two segments. What pipeline_checks.hpp refuses today is let through: this choice does not rely
/// on it.
PipelineConfig config_of(Place front, Place back, const std::string& transport = "auto") {
    const std::string text = "[pipeline]\ntransport = \"" + transport +
                             "\"\n[[stage]]\nname = \"front\"\nrole = \"segment\"\n"
                             "[[stage]]\nname = \"back\"\nrole = \"segment\"\n";
    PipelineConfig config = parse_pipeline_config(text, "x.toml").value();
    for (std::size_t i = 0; i < 2; ++i) {
        const Place at = i == 0 ? front : back;
        config.stages[i].device.gpu = at.gpu;
        config.stages[i].process = at.process;
    }
    return config;
}

GpuMachine machine_of(LinkKind link) {
    GpuMachine machine{.source = "m", .name = "m", .gpus = {{"A", 1, {}}, {"B", 1, {}}}};
    machine.links[{0, 1}] = {link, link == LinkKind::Nvlink ? 300.0 : 0.0};
    return machine;
}

/// What the table says of the edge between them, behind its transport's place; or the error.
std::string way(const PipelineConfig& config, LinkKind link, const GpuLinks& links) {
    const Placement placement = place(config, 4, {0, 1}).value();
    std::vector<EdgeSpec> edges = edges_of(placement, config, {.dim = 8});
    const GpuMachine machine = machine_of(link);
    const auto chosen = choose_transports(edges, placement, config, {machine, links});
    if (!chosen.ok()) return chosen.error().what;
    for (const EdgeSpec& edge : edges) {
        const bool tensors = edge.tensor_slots > 0;
        CHECK(edge.name == (tensors ? "front -> back" : ""));
        if (!tensors) CHECK(edge.transport == Transport::Host);
    }
    const std::string text = transports_text(edges, chosen.value(), placement, machine);
    REQUIRE(text.starts_with("front -> back, hidden states: "));
    REQUIRE(text.ends_with("\n"));
    return text.substr(30, text.size() - 31);
}

}  // namespace

TEST_CASE("the transport follows from where both ends are and what lies between them") {
    const auto two = config_of(kGpu0, kGpu1);
    const auto one = config_of(kGpu0, kGpu0);
    const auto shared = config_of(kGpu0Shared, kGpu0Shared);
    CHECK(way(shared, LinkKind::Host, kAll) == "cuda:0 to cuda:0, local: in the same process");
    CHECK(way(one, LinkKind::Host, kAll) == "cuda:0 to cuda:0, exported: both on cuda:0");
    CHECK(way(two, LinkKind::Nvlink, kAll) ==
          "cuda:0 to cuda:1 (link nvlink, 300 GB/s), exported: cuda:0 and cuda:1 reach each other");
    CHECK(way(two, LinkKind::Peer, kAll) ==
          "cuda:0 to cuda:1 (link peer access), exported: cuda:0 and cuda:1 reach each other");
    CHECK(way(two, LinkKind::Host, kAll) ==
          "cuda:0 to cuda:1 (link host), nccl: cuda:0 and cuda:1 do not reach each other");
    CHECK(way(two, LinkKind::Unknown, kAll) ==
          "cuda:0 to cuda:1 (link unknown), nccl: cuda:0 and cuda:1 do not reach each other");
    GpuLinks links = kAll;
    links.exported = false;
    links.why_no_exported = "no VMM";
    CHECK(way(two, LinkKind::Pcie, links) == "cuda:0 to cuda:1 (link pcie), nccl: no VMM");
    CHECK(way(one, LinkKind::Pcie, links) == "cuda:0 to cuda:0, host: no VMM");
    links.nccl = false;
    links.why_no_nccl = "no libnccl.so.2";
    CHECK(way(two, LinkKind::Host, links) ==
          "cuda:0 to cuda:1 (link host), host: cuda:0 and cuda:1 do not reach each other; no NCCL: "
          "no libnccl.so.2");
    CHECK(way(shared, LinkKind::Host, kNone) == "cuda:0 to cuda:0, host: no local");
}

TEST_CASE("what has an end on the CPU, or a process with two GPUs, goes through the host") {
    CHECK(way(config_of(kGpu0, kCpu), LinkKind::Nvlink, kAll) ==
          "cuda:0 to cpu, host: back is on the CPU");
    CHECK(way(config_of(kCpu, kCpu), LinkKind::Nvlink, kAll) ==
          "cpu to cpu, host: front is on the CPU");
    CHECK(way(config_of(kGpu0Shared, kGpu1Shared), LinkKind::Nvlink, kAll) ==
          "cuda:0 to cuda:1 (link nvlink, 300 GB/s), host: process p computes on two GPUs");
}

TEST_CASE("features of an EAGLE draft go through the host, hidden states beside them do not") {
    const char* text =
        "[[stage]]\nname = \"front\"\nrole = \"segment\"\n"
        "[[stage]]\nname = \"back\"\nrole = \"segment\"\n"
        "[[stage]]\nname = \"draft\"\nrole = \"draft\"\n[draft]\nsource = \"eagle\"\n";
    PipelineConfig config = parse_pipeline_config(text, "x.toml").value();
    for (std::size_t i = 0; i < 3; ++i) config.stages[i].device.gpu = static_cast<int>(i % 2);
    for (const TransportChoice choice : {TransportChoice::Auto, TransportChoice::Exported}) {
        config.transport = choice;
        const Placement placement = place(config, 4, {0, 1}).value();
        std::vector<EdgeSpec> edges = edges_of(placement, config, {.dim = 8});
        const GpuMachine machine = machine_of(LinkKind::Nvlink);
        REQUIRE(choose_transports(edges, placement, config, {machine, kAll}).ok());
        int with_tensors = 0;
        for (const EdgeSpec& edge : edges) {
            if (edge.tensor_slots == 0) continue;
            ++with_tensors;
            const bool features = edge.to == placement.draft();
            CHECK(edge.transport == (features ? Transport::Host : Transport::Exported));
        }
        CHECK(with_tensors == 2);
    }
}

TEST_CASE("a forced transport holds between processes, and is refused by name where it cannot be") {
    CHECK(way(config_of(kGpu0, kGpu1, "host"), LinkKind::Nvlink, kAll) ==
          "cuda:0 to cuda:1 (link nvlink, 300 GB/s), host: transport = \"host\"");
    CHECK(way(config_of(kGpu0Shared, kGpu0Shared, "host"), LinkKind::Nvlink, kAll) ==
          "cuda:0 to cuda:0, host: transport = \"host\"");
    CHECK(way(config_of(kGpu0, kGpu1, "nccl"), LinkKind::Pcie, kAll) ==
          "cuda:0 to cuda:1 (link pcie), nccl: transport = \"nccl\"");
    // Two ranks on one GPU: for tests of the transport.
    CHECK(way(config_of(kGpu0, kGpu0, "nccl"), LinkKind::Host, kAll) ==
          "cuda:0 to cuda:0, nccl: transport = \"nccl\"");
    CHECK(way(config_of(kGpu0, kGpu0, "exported"), LinkKind::Host, kAll) ==
          "cuda:0 to cuda:0, exported: transport = \"exported\"");
    CHECK(way(config_of(kGpu0, kGpu1, "exported"), LinkKind::Host, kAll) ==
          "x.toml: [pipeline] transport = \"exported\" cannot be for front -> back: cuda:0 and "
          "cuda:1 do not reach each other");
    CHECK(way(config_of(kGpu0, kGpu1, "exported"), LinkKind::Nvlink, kNone) ==
          "x.toml: [pipeline] transport = \"exported\" cannot be for front -> back: no VMM");
    CHECK(way(config_of(kGpu0, kGpu1, "nccl"), LinkKind::Nvlink, kNone) ==
          "x.toml: [pipeline] transport = \"nccl\" cannot be for front -> back: no libnccl.so.2");
    for (const char* word : {"exported", "nccl"}) {
        const std::string text = way(config_of(kCpu, kCpu, word), LinkKind::Nvlink, kAll);
        CHECK(text == "x.toml: [pipeline] transport = \"" + std::string{word} +
                          "\" applies to nothing: no tensors travel between GPUs of two processes");
        CHECK(way(config_of(kGpu0Shared, kGpu0Shared, word), LinkKind::Nvlink, kAll)
                  .find("applies to nothing") != std::string::npos);
    }
}

TEST_CASE("a word that is no transport is refused with the ones that are") {
    const Result<PipelineConfig> config = parse_pipeline_config(
        "[pipeline]\ntransport = \"ncl\"\n[[stage]]\nname = \"a\"\nrole = \"segment\"\n", "x.toml");
    REQUIRE_FALSE(config.ok());
    CHECK(config.error().what.find("transport") != std::string::npos);
    CHECK(config.error().what.find("nccl") != std::string::npos);
}

TEST_CASE("a process is told whether tensors of its edges lie on its GPU") {
    const PipelineConfig config = config_of(kGpu0, kGpu1);
    const Placement placement = place(config, 4, {0, 1}).value();
    CommonAssignment common{.edges = edges_of(placement, config, {.dim = 8})};
    const auto told = [&](std::size_t process) {
        const StageAssignment made =
            assignment_of(placement.processes[process], placement, config, common);
        const StageAssignment read = decode_assignment(encode(made)).value();
        CHECK(read.tensors_on_device == made.tensors_on_device);
        return read.tensors_on_device;
    };
    CHECK_FALSE(told(0));
    CHECK_FALSE(told(1));
    const GpuMachine machine = machine_of(LinkKind::Peer);
    REQUIRE(choose_transports(common.edges, placement, config, {machine, kAll}).ok());
    CHECK(told(0));
    CHECK(told(1));
}
