// What the runtime is told of a placement, and which mixtures of stages are refused.
#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/stage_sizes.hpp"
#include "runtime/loop/control_port.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr const char* kTwoAndADraft = R"(
[[stage]]
name = "draft"
role = "draft"
[[stage]]
name = "front"
role = "segment"
[[stage]]
name = "back"
role = "segment"
on_death = "stop-run"
[draft]
)";

Placement two_and_a_draft() {
    const PipelineConfig config = parse_pipeline_config(kTwoAndADraft, "x.toml").value();
    return place(config, 4, {0, 1}).value();
}

bool has_edge(const std::vector<EdgeSpec>& edges, int from, int to) {
    return std::any_of(edges.begin(), edges.end(), [&](const EdgeSpec& edge) {
        return edge.from.value == from && edge.to.value == to;
    });
}

control::Hello segment_hello() {
    control::Hello hello;
    hello.role = "segment";
    hello.equality_class = "cpu";
    hello.model_fingerprint = "17";
    hello.vocab_size = 100;
    return hello;
}

std::vector<control::Hello> good_hellos() {
    control::Hello draft;
    draft.role = "draft";
    draft.vocab_size = 100;
    return {segment_hello(), segment_hello(), draft};
}

std::string refusal_of(const std::vector<control::Hello>& hellos) {
    const Status status = check_hellos(hellos, two_and_a_draft());
    REQUIRE(!status.ok());
    return status.error().what;
}

}  // namespace

TEST_CASE(
    "the verifier tells everybody, the draft tells the first, and only batches carry tensors") {
    const PipelineConfig config = parse_pipeline_config(kTwoAndADraft, "x.toml").value();
    const std::vector<EdgeSpec> edges = edges_of(two_and_a_draft(), config, {.dim = 64});
    CHECK(has_edge(edges, 1, 2));  // batches
    CHECK(has_edge(edges, 2, 1));  // verdicts, also to the draft and to the conductor
    CHECK(has_edge(edges, 2, 3));
    CHECK(has_edge(edges, 2, 0));
    CHECK(has_edge(edges, 3, 1));  // proposals
    for (const int stage : {1, 2, 3}) CHECK(has_edge(edges, 0, stage));
    CHECK(has_edge(edges, 1, 3));  // prices
    CHECK(edges.size() == 9);
    for (const EdgeSpec& edge : edges) {
        const bool batch = edge.from == StageId{1} && edge.to == StageId{2};
        CHECK((edge.tensor_slots > 0) == batch);
    }
}

TEST_CASE("pools and rings between segments have room for the largest batch, others stay short") {
    struct Case {
        std::string schedule;
        std::string device;
        std::uint32_t prefill;
        std::uint32_t rows;
    };
    const std::vector<Case> cases{{"", "cpu", 64, 64},
                                  {"", "cuda:0", 512, 512},
                                  {"[schedule]\nprefill_rows = 200\n", "cpu", 200, 200},
                                  {"[schedule]\nprefill_rows = 16\n", "cuda:0", 16, 64}};
    for (const Case& one : cases) {
        CAPTURE(one.schedule);
        CAPTURE(one.device);
        const std::string text =
            "[pipeline]\nname = \"x\"\n[[stage]]\nname = \"both\"\nrole = \"segment\"\n"
            "layers = \"auto\"\nsegments = 2\nprocess = \"p\"\ndevice = \"" +
            one.device + "\"\n" + one.schedule;
        const PipelineConfig config = parse_pipeline_config(text, "x.toml").value();
        const Placement placed = place(config, 8, {0, 1}).value();
        CHECK(placed.prefill_rows == one.prefill);
        for (const PlacedStage& stage : placed.stages) CHECK(stage.rows_max == one.rows);
        const StageAssignment assignment =
            assignment_of(placed.processes.front(), placed, config, {});
        CHECK(assignment.dispatch.prefill_rows == one.prefill);
        CHECK(assignment.dispatch.batch_rows() == one.rows);
        for (const StageSpec& spec : assignment.stages) CHECK(spec.rows_max == one.rows);
        const Result<StageAssignment> sent = decode_assignment(encode(assignment));
        REQUIRE(sent);
        CHECK(sent.value().dispatch.prefill_rows == one.prefill);
        CHECK(sent.value().stages.back().rows_max == one.rows);
        for (const EdgeSpec& edge : edges_of(placed, config, {.dim = 64})) {
            const bool batches = edge.tensor_slots > 0;
            CHECK(edge.frame_bytes == frame_bytes_for(batches ? one.rows : kVerifyRowsMax));
            if (batches) CHECK(edge.tensor_bytes == one.rows * 64 * sizeof(float));
        }
    }
}

TEST_CASE("the edge to an EAGLE draft has a slot for each request of a batch") {
    const EdgeSpec edge = feature_edge(StageId{2}, StageId{3}, 64, 3);
    CHECK(edge.tensor_slots >= kBatchPartsMax);
    CHECK(edge.tensor_bytes == (kGammaMax + 1) * std::size_t{3} * 64 * sizeof(float));
}

TEST_CASE("rings between segments have room for what a draft draws, if it draws") {
    for (const bool draws : {false, true}) {
        CAPTURE(draws);
        const std::string text =
            "[pipeline]\nname = \"x\"\n[[stage]]\nname = \"draft\"\nrole = \"draft\"\n"
            "[[stage]]\nname = \"target\"\nrole = \"segment\"\nlayers = \"auto\"\nsegments = 2\n"
            "[acceptance]\nrule = \"rejection\"\n[draft]\nsource = \"first-layers\"\ndraws = " +
            std::string{draws ? "true" : "false"} + "\n";
        const PipelineConfig config = parse_pipeline_config(text, "x.toml").value();
        const Placement placed = place(config, 8, {0, 1}).value();
        for (const EdgeSpec& edge : edges_of(placed, config, {.dim = 64})) {
            CHECK(edge.frame_bytes ==
                  frame_bytes_for(kVerifyRowsMax, draws && edge.tensor_slots > 0));
        }
    }
}

TEST_CASE("a draft on a GPU reads prompts in longer passes than segments on CPUs do") {
    const std::string text =
        "[pipeline]\nname = \"x\"\n[[stage]]\nname = \"draft\"\nrole = \"draft\"\n"
        "device = \"cuda:0\"\n[[stage]]\nname = \"target\"\nrole = \"segment\"\n"
        "layers = \"auto\"\n[draft]\nsource = \"first-layers\"\n";
    const PipelineConfig config = parse_pipeline_config(text, "x.toml").value();
    const Placement placed = place(config, 8, {0, 1}).value();
    CHECK(placed.prefill_rows == kVerifyRowsMax);
    CHECK(placed.stage(placed.verifier()).rows_max == kVerifyRowsMax);
    CHECK(placed.stage(*placed.draft()).rows_max == kBatchRowsMax);
}

TEST_CASE("in four stages the exit tells draft and correct, and the trunk travels with its keys") {
    const PipelineConfig config = method_config("four-stages").value();
    const Placement placed = place(config, 8, {0, 1}).value();
    const std::vector<EdgeSpec> edges =
        edges_of(placed, config, {.dim = 64, .draft_kv_row_bytes = 100});
    const int early = 1;
    const int final_verify = 2;
    const int draft = 3;
    const int correct = 4;
    CHECK(placed.draft() == StageId{draft});
    CHECK(placed.correct() == StageId{correct});
    for (const int stage : {draft, correct}) {
        CHECK(has_edge(edges, stage, early));
        CHECK(has_edge(edges, early, stage));
        CHECK(has_edge(edges, final_verify, stage));
    }
    CHECK(has_edge(edges, correct, draft));
    const auto trunk = std::find_if(edges.begin(), edges.end(), [&](const EdgeSpec& edge) {
        return edge.from.value == draft && edge.to.value == correct;
    });
    REQUIRE(trunk != edges.end());
    CHECK(trunk->tensor_bytes == std::size_t{kVerifyRowsMax} * 100);
    const ConductorPlan plan = conductor_plan(placed, config.supervision);
    for (const ConductorPlan::Stage& stage : plan.begin_to)
        CHECK(stage.essential == (stage.id.value <= final_verify));
}

TEST_CASE("each segment has tensors for a draft that is tapped, and none for another") {
    const std::string text =
        "[[stage]]\nname = \"draft\"\nrole = \"draft\"\n"
        "[[stage]]\nname = \"early\"\nrole = \"early-verify\"\nlayers = [0.0, 0.5]\n"
        "[[stage]]\nname = \"final\"\nrole = \"final-verify\"\nlayers = [0.5, 1.0]\n"
        "[exit]\ncandidates = true\n"
        "[draft]\nsource = \"skip-layers\"\nexit_alternatives = 1\n";
    for (const bool tapped : {false, true}) {
        CAPTURE(tapped);
        const PipelineConfig config =
            parse_pipeline_config(text + (tapped ? "choose = \"programme\"\n" : ""), "x.toml")
                .value();
        const Placement placed = place(config, 8, {0, 1}).value();
        const std::vector<EdgeSpec> edges = edges_of(placed, config, {.dim = 64});
        int found = 0;
        for (const EdgeSpec& edge : edges) {
            if (edge.to != placed.draft() || edge.from == kConductor) continue;
            CHECK(edge.tensor_slots == (tapped ? 2 : 0));
            CHECK(edge.tensor_bytes == (tapped ? 4 * 64 * sizeof(float) : 0));
            ++found;
        }
        CHECK(found == 2);
        const StageAssignment assignment =
            assignment_of(placed.processes.back(), placed, config, {});
        CHECK(decode_assignment(encode(assignment)).value().draft.is_tapped() == tapped);
        CHECK_FALSE(config.draft->searches());
    }
}

TEST_CASE("draft and correct share keys and values where both store them as one type") {
    const PipelineConfig config = method_config("four-stages").value();
    Placement placed = place(config, 8, {0, 1}).value();
    const auto share = [&](const Device& draft, const Device& correct, const char* kv_dtype) {
        placed.stages[2].device = draft;
        placed.stages[3].device = correct;
        REQUIRE(placed.stages[2].id == placed.draft());
        REQUIRE(placed.stages[3].id == placed.correct());
        ModelOptions options;
        options.kv_dtype = kv_dtype;
        return drafts_share_kv(placed, options);
    };
    const Device cpu{};
    const Device gpu{0};
    CHECK(share(cpu, cpu, "auto"));
    CHECK(share(gpu, gpu, "auto"));
    CHECK(share(gpu, Device{1}, "auto"));
    CHECK_FALSE(share(gpu, cpu, "auto"));
    CHECK_FALSE(share(cpu, gpu, "auto"));
    CHECK(share(cpu, gpu, "bf16"));
    CHECK(share(gpu, cpu, "f16"));
    // Where the target's segments are does not matter.
    for (const std::size_t segment : {0U, 1U}) placed.stages[segment].device = gpu;
    CHECK(share(cpu, cpu, "auto"));
}

TEST_CASE("no method names an edge twice, and each can be wired") {
    for (const Method& method : methods()) {
        CAPTURE(std::string{method.name});
        const PipelineConfig config = method_config(method.name).value();
        const Placement placed = place(config, 8, {0, 1}).value();
        std::vector<ProcessSpec> processes{{.id = kConductor, .actors = {kConductor}}};
        for (const PlacedProcess& process : placed.processes)
            processes.push_back({.id = process.id(), .actors = process.stages});
        const auto edges = edges_of(placed, config, {.dim = 8, .draft_kv_row_bytes = 4});
        const auto plan = WiringPlan::create(processes, edges, WiringPlan::Checksums::HeadersOnly);
        if (!plan.ok()) FAIL(plan.error().what);
    }
}

TEST_CASE("the first segment learns of a request last, and only a draft can be done without") {
    const ConductorPlan plan = conductor_plan(two_and_a_draft(), SupervisionConfig{});
    REQUIRE(plan.begin_to.size() == 3);
    CHECK(plan.begin_to[0].id == StageId{3});
    CHECK(!plan.begin_to[0].essential);
    CHECK(plan.begin_to[1].essential);
    CHECK(plan.begin_to[2].id == StageId{1});
    CHECK(plan.begin_to[2].name == "stage 'front'");  // as the news call it
    CHECK(plan.verifier == StageId{2});
}

TEST_CASE("a request is waited for longer than the supervisor takes to replace stages that hang") {
    SupervisionConfig supervision;
    const Micros floor = conductor_plan(two_and_a_draft(), supervision).progress.floor;
    CHECK(floor == Micros{4 * supervision.hang_limit + supervision.stop_grace});
    supervision.hang_limit = std::chrono::milliseconds{0};
    CHECK(conductor_plan(two_and_a_draft(), supervision).progress.floor == Micros{0});
}

TEST_CASE("every process gets the policy of its stages and its own stages") {
    const PipelineConfig config = parse_pipeline_config(kTwoAndADraft, "x.toml").value();
    const auto children =
        children_of(two_and_a_draft(), config, {.usable_cores = 2, .kv_slots = 100});
    REQUIRE(children.size() == 3);
    CHECK(children[0].on_death == OnDeath::RebuildChain);
    CHECK(children[1].on_death == OnDeath::StopRun);
    CHECK(children[2].on_death == OnDeath::RestartAlone);
    CHECK(children[2].name == "draft");
    CHECK(children[2].actors == std::vector{StageId{3}});
}

TEST_CASE("stages that agree are let in") {
    CHECK(check_hellos(good_hellos(), two_and_a_draft()).ok());
}

TEST_CASE("other weights, another class, another vocabulary are refused by the stage's name") {
    auto hellos = good_hellos();
    hellos[1].model_fingerprint = "18";
    CHECK(refusal_of(hellos) == "stage back loaded other weights than front");
    hellos = good_hellos();
    hellos[1].equality_class = "gpu";
    CHECK(refusal_of(hellos).find("mixed classes do not give equal bits") != std::string::npos);
    hellos = good_hellos();
    hellos[2].vocab_size = 101;
    CHECK(refusal_of(hellos) == "stage draft has a vocabulary of 101, front one of 100");
}
